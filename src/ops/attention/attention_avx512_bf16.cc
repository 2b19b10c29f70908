// Attention through BF16 dot products: one instruction takes two dimensions (or two tokens) of 16
// tokens (or dimensions). Keys and values of 8 bits and of bfloat16 are exact in bfloat16; queries
// and softmax weights are rounded to it.
//
// A tile is decoded once into pairs, then multiplied by all rows of the query group or of a
// prompt's block, in decode as in prefill: the same sums. e4m3 and int8 are decoded by table
// (VBMI): 128 magnitudes each in two pairs of registers, the sign put in by a ternary operation,
// subnormals exact.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/attention/attention_avx512.h"

namespace octet {

namespace {

void round(const float* x, std::int64_t count, std::uint16_t* out) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
    std::memcpy(out + i, &rounded, sizeof(rounded));
  }
}

// Low and high bytes of the bfloat16 of 128 magnitudes.
struct MagnitudeTable {
  alignas(64) std::uint8_t low[128];
  alignas(64) std::uint8_t high[128];
  void set(int magnitude, std::uint16_t bits) {
    low[magnitude] = static_cast<std::uint8_t>(bits & 0xFF);
    high[magnitude] = static_cast<std::uint8_t>(bits >> 8);
  }
};

// e4m3's value / 2^8, as AttentionKernels::fp8_divisor says. By hand, since an inline function of a
// shared header compiled here could end up in a program for other machines: 2^(e - 7) (1 + m / 8)
// is exponent e + 120, less 8 here; a subnormal m 2^-9 is normalised. 127 is NaN.
MagnitudeTable make_fp8_table() {
  MagnitudeTable table;
  for (int magnitude = 0; magnitude < 127; ++magnitude) {
    const int exponent = magnitude >> 3;
    const int mantissa = magnitude & 7;
    int bits = ((exponent + 112) << 7) | (mantissa << 4);
    if (exponent == 0) {
      const int top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;  // of mantissa's highest bit
      const int rest = (mantissa << (7 - top)) & 0x7F;
      bits = mantissa == 0 ? 0 : ((top + 127 - 9 - 8) << 7) | rest;
    }
    table.set(magnitude, static_cast<std::uint16_t>(bits));
  }
  table.set(127, 0x7FC0);
  return table;
}

MagnitudeTable make_int8_table() {
  MagnitudeTable table;
  for (int magnitude = 0; magnitude < 128; ++magnitude) {
    const float value = static_cast<float>(magnitude);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    table.set(magnitude, static_cast<std::uint16_t>(bits >> 16));
  }
  return table;
}

struct PairSink {
  std::uint16_t* out;  // of a pair's 64 columns
  [[gnu::always_inline]] void store(int part, __m512i pairs) const {
    _mm512_storeu_si512(out + 32 * part, pairs);
  }
};

// Codes of 1 byte: magnitudes by table. int8's magnitude is its absolute value.
template <bool is_int8>
class ByteDecoder {
 public:
  static constexpr int bytes = 1;
  explicit ByteDecoder(const MagnitudeTable& table)
      : low0_(_mm512_load_si512(table.low)),
        low1_(_mm512_load_si512(table.low + 64)),
        high0_(_mm512_load_si512(table.high)),
        high1_(_mm512_load_si512(table.high + 64)) {}

  // The bytes are unpacked within lanes of 16, twice: first the dwords go where that puts them in
  // order.
  [[gnu::always_inline]] void decode(const std::byte* first, const std::byte* second,
                                     const PairSink& sink) const {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i a = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(first));
    const __m512i b = second == nullptr
                          ? _mm512_setzero_si512()
                          : _mm512_permutexvar_epi32(order, _mm512_loadu_si512(second));
    widen(_mm512_unpacklo_epi8(a, b), 0, sink);
    widen(_mm512_unpackhi_epi8(a, b), 2, sink);
  }

 private:
  [[gnu::always_inline]] void widen(__m512i codes, int part, const PairSink& sink) const {
    const __m512i index = is_int8 ? _mm512_abs_epi8(codes) : codes;
    const __m512i low = _mm512_permutex2var_epi8(low0_, index, low1_);
    const __m512i magnitude = _mm512_permutex2var_epi8(high0_, index, high1_);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, sign, 0xF8);  // a | (b & c)
    sink.store(part, _mm512_unpacklo_epi8(low, high));
    sink.store(part + 1, _mm512_unpackhi_epi8(low, high));
  }

  __m512i low0_;
  __m512i low1_;
  __m512i high0_;
  __m512i high1_;
};

class Bfloat16Decoder {
 public:
  static constexpr int bytes = 2;
  Bfloat16Decoder() {
    alignas(64) std::uint16_t order[64];
    for (int i = 0; i < 32; ++i) {
      order[2 * i] = static_cast<std::uint16_t>(i);
      order[2 * i + 1] = static_cast<std::uint16_t>(32 + i);
    }
    first_ = _mm512_load_si512(order);
    last_ = _mm512_load_si512(order + 32);
  }
  [[gnu::always_inline]] void decode(const std::byte* first, const std::byte* second,
                                     const PairSink& sink) const {
    for (int half = 0; half < 2; ++half) {
      const __m512i a = _mm512_loadu_si512(first + 64 * half);
      const __m512i b =
          second == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(second + 64 * half);
      sink.store(2 * half, _mm512_permutex2var_epi16(a, first_, b));
      sink.store(2 * half + 1, _mm512_permutex2var_epi16(a, last_, b));
    }
  }

 private:
  __m512i first_;
  __m512i last_;
};

template <class Decoder>
void decode_tile(const Decoder& decoder, const std::byte* stored, int depth, int columns,
                 std::uint16_t* pairs) {
  const std::ptrdiff_t row_bytes = static_cast<std::ptrdiff_t>(columns) * Decoder::bytes;
  for (int k = 0; k < depth; k += 2) {
    const std::byte* first = stored + k * row_bytes;
    const std::byte* second = k + 1 < depth ? first + row_bytes : nullptr;
    for (int n = 0; n < columns; n += 64) {
      decoder.decode(first + n * Decoder::bytes,
                     second == nullptr ? nullptr : second + n * Decoder::bytes,
                     {pairs + static_cast<std::ptrdiff_t>(k) * columns + 2 * n});
    }
  }
}

void decode_pairs(KvDtype dtype, const std::byte* stored, int depth, int columns,
                  std::uint16_t* pairs) {
  static const MagnitudeTable fp8_table = make_fp8_table();
  static const MagnitudeTable int8_table = make_int8_table();
  if (dtype == KvDtype::fp8) {
    decode_tile(ByteDecoder<false>(fp8_table), stored, depth, columns, pairs);
  } else if (dtype == KvDtype::int8) {
    decode_tile(ByteDecoder<true>(int8_table), stored, depth, columns, pairs);
  } else {
    decode_tile(Bfloat16Decoder(), stored, depth, columns, pairs);
  }
}

[[gnu::always_inline]] inline __m512bh load_pairs(const void* p) {
  __m512bh pairs;
  const __m512i bits = _mm512_loadu_si512(p);
  std::memcpy(&pairs, &bits, sizeof(pairs));
  return pairs;
}

[[gnu::always_inline]] inline __m512bh broadcast_pair(const std::uint16_t* p) {
  std::int32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  const __m512i bits = _mm512_set1_epi32(pair);
  __m512bh pairs;
  std::memcpy(&pairs, &bits, sizeof(pairs));
  return pairs;
}

// Rows x 64 outputs.
template <int Rows>
void multiply_block(const std::uint16_t* a, std::ptrdiff_t a_stride, const std::uint16_t* pairs,
                    std::ptrdiff_t columns, float* c, const float* scale, int pair_count) {
  __m512 sums[Rows][4];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sums[r][v] = scale == nullptr ? _mm512_setzero_ps()
                                    : _mm512_mul_ps(_mm512_loadu_ps(c + r * columns + 16 * v),
                                                    _mm512_set1_ps(scale[r]));
    }
  }
  for (int k = 0; k < pair_count; ++k) {
    __m512bh b[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) b[v] = load_pairs(pairs + 32 * v);
    pairs += 2 * columns;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m512bh factor = broadcast_pair(a + r * a_stride + 2 * k);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], factor, b[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) _mm512_storeu_ps(c + r * columns + 16 * v, sums[r][v]);
  }
}

template <int Rows>
void multiply_rows(const std::uint16_t* a, int a_stride, const std::uint16_t* pairs, float* c,
                   const float* scale, int pair_count, int columns) {
  for (int n = 0; n < columns; n += 64) {
    multiply_block<Rows>(a, a_stride, pairs + 2 * n, columns, c + n, scale, pair_count);
  }
}

void multiply_pairs(const std::uint16_t* a, int a_stride, const std::uint16_t* pairs, float* c,
                    const float* scale, int rows, int pair_count, int columns) {
  for (int r = 0; r < rows;) {
    const std::uint16_t* row_a = a + static_cast<std::ptrdiff_t>(r) * a_stride;
    float* row_c = c + static_cast<std::ptrdiff_t>(r) * columns;
    const float* row_scale = scale == nullptr ? nullptr : scale + r;
    const auto run = [&]<int Rows>() {
      multiply_rows<Rows>(row_a, a_stride, pairs, row_c, row_scale, pair_count, columns);
      r += Rows;
    };
    switch (rows - r) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      case 4:
        run.template operator()<4>();
        break;
      case 5:
        run.template operator()<5>();
        break;
      default:
        run.template operator()<6>();
        break;
    }
  }
}

}  // namespace

const AttentionKernels& attention_kernels_avx512_bf16() {
  static const AttentionPairKernels pairs = {
      .round = round, .decode = decode_pairs, .multiply = multiply_pairs};
  static const AttentionKernels kernels = [] {
    AttentionKernels set = attention_kernels_avx512();
    set.pairs = &pairs;
    return set;
  }();
  return kernels;
}

}  // namespace octet
