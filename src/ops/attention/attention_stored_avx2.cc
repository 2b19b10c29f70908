// Few query rows (decode) against keys or values as they are stored: decoded in registers, so that
// the cache is read once and no decoded copy goes through the first-level cache.
//
// Multiply-adds fill two of a Zen 3's four vector pipes, and decoding runs beside them in the other
// two: three rows and 16 columns take 6 multiply-adds and 8 operations of decoding e4m3, at least
// 3.5 cycles where the multiply-adds alone take 3. Blocks are as wide as keeps all sums in
// registers: one sum in memory puts 12 cycles between its additions.
#include "ops/attention/attention_stored_avx2.h"

#include <algorithm>

#include <immintrin.h>

namespace octet {

namespace {

using Bytes = const unsigned char*;

// Sixteen stored elements as two vectors.
struct Float32Stored {
  static constexpr int bytes = 4;
  static constexpr bool has_nan_codes = false;
  [[gnu::always_inline]] static void load(Bytes p, __m256 out[2]) {
    out[0] = _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    out[1] = _mm256_loadu_ps(reinterpret_cast<const float*>(p) + 8);
  }
};

struct Float16Stored {
  static constexpr int bytes = 2;
  static constexpr bool has_nan_codes = false;
  [[gnu::always_inline]] static void load(Bytes p, __m256 out[2]) {
    out[0] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    out[1] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)));
  }
};

struct Bfloat16Stored {
  static constexpr int bytes = 2;
  static constexpr bool has_nan_codes = false;
  [[gnu::always_inline]] static __m256 widen(Bytes p) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  [[gnu::always_inline]] static void load(Bytes p, __m256 out[2]) {
    out[0] = widen(p);
    out[1] = widen(p + 16);
  }
};

struct Int8Stored {
  static constexpr int bytes = 1;
  static constexpr bool has_nan_codes = false;
  [[gnu::always_inline]] static __m256 widen(Bytes p) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  }
  [[gnu::always_inline]] static void load(Bytes p, __m256 out[2]) {
    out[0] = widen(p);
    out[1] = widen(p + 8);
  }
};

// As attention_avx2.cc decodes e4m3, but for the NaN codes, which read as 480 / 2^8 here.
struct Fp8Stored {
  static constexpr int bytes = 1;
  static constexpr bool has_nan_codes = true;
  [[gnu::always_inline]] static void load(Bytes p, __m256 out[2]) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                          _mm256_set1_epi16(static_cast<short>(0xBF80)));
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
  }
};

struct Problem {
  const float* a;
  std::ptrdiff_t a_stride;
  Bytes b;
  std::ptrdiff_t b_stride;  // bytes
  Bytes next_b;             // what to prefetch, laid out as b
  float* c;
  std::ptrdiff_t c_stride;
  const float* scale;
  int depth;
  int columns;
};

// Adds the products of one k.
template <class Stored, int Rows, int Pairs>
[[gnu::always_inline]] inline void add_products(const float* a, std::ptrdiff_t a_stride, Bytes b,
                                                __m256 sums[Rows][2 * Pairs]) {
#pragma GCC unroll 8
  for (int pair = 0; pair < Pairs; ++pair) {
    __m256 columns[2];
    Stored::load(b + 16 * Stored::bytes * pair, columns);
    // Or GCC would keep the factors for the next pair, and sums in memory for want of registers.
    asm("" : "+r"(a));
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m256 factor = _mm256_broadcast_ss(a + r * a_stride);
      sums[r][2 * pair] = _mm256_fmadd_ps(factor, columns[0], sums[r][2 * pair]);
      sums[r][2 * pair + 1] = _mm256_fmadd_ps(factor, columns[1], sums[r][2 * pair + 1]);
    }
  }
}

// Rows x (16 Pairs) outputs from column n on. With Fetch, the line of next_b that lies where this
// block starts in b is asked for at each k.
template <class Stored, int Rows, int Pairs, bool Fetch>
[[gnu::always_inline]] inline void stored_block(const Problem& p, int n) {
  constexpr int vectors = 2 * Pairs;
  __m256 sums[Rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const float* c = p.c + r * p.c_stride + n;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = p.scale == nullptr
                       ? _mm256_setzero_ps()
                       : _mm256_mul_ps(_mm256_loadu_ps(c + 8 * v), _mm256_set1_ps(p.scale[r]));
    }
  }
  Bytes b = p.b + n * Stored::bytes;
  Bytes next = p.next_b + n * Stored::bytes;
  const std::ptrdiff_t a_stride = p.a_stride;
  const std::ptrdiff_t b_stride = p.b_stride;
  const float* a = p.a;
  const float* const end = a + p.depth;
  for (; a != end; ++a) {
    if constexpr (Fetch) {
      _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
      next += b_stride;
    }
    add_products<Stored, Rows, Pairs>(a, a_stride, b, sums);
    b += b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    float* c = p.c + r * p.c_stride + n;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) _mm256_storeu_ps(c + 8 * v, sums[r][v]);
  }
}

template <class Stored, int Rows, int Pairs>
void stored_columns(const Problem& p, int n) {
  constexpr int line_bytes = 64;
  if (p.next_b != nullptr && n * Stored::bytes % line_bytes == 0) {
    stored_block<Stored, Rows, Pairs, true>(p, n);
  } else {
    stored_block<Stored, Rows, Pairs, false>(p, n);
  }
}

template <class Stored, int Rows, int Pairs>
[[gnu::noinline]] void stored_rows(const Problem& p) {
  int n = 0;
  for (; n + 16 * Pairs <= p.columns; n += 16 * Pairs) stored_columns<Stored, Rows, Pairs>(p, n);
  for (; n < p.columns; n += 16) stored_columns<Stored, Rows, 1>(p, n);
}

// Of `bytes` (a multiple of 16) codes. Twice a NaN code is 0xFE, whatever its sign, and no other is
// as large.
bool has_nan_code(Bytes codes, std::ptrdiff_t bytes) {
  __m256i largest[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  const auto add = [&largest](int i, __m256i part) {
    largest[i] = _mm256_max_epu8(largest[i], _mm256_add_epi8(part, part));
  };
  std::ptrdiff_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    add(0, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
    add(1, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i + 32)));
  }
  for (; i < bytes; i += 16) {
    add(0, _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i))));
  }
  const __m256i nan = _mm256_cmpeq_epi8(_mm256_max_epu8(largest[0], largest[1]),
                                        _mm256_set1_epi8(static_cast<char>(0xFE)));
  return _mm256_movemask_epi8(nan) != 0;
}

// Columns that hold a NaN code become NaN, as a sum over them does.
void spread_nan(const Problem& p, int rows) {
  for (int n = 0; n < p.columns; ++n) {
    for (int k = 0; k < p.depth; ++k) {
      if ((p.b[k * p.b_stride + n] & 0x7F) != 0x7F) continue;
      for (int r = 0; r < rows; ++r) p.c[r * p.c_stride + n] = __builtin_nanf("");
    }
  }
}

template <class Stored>
void multiply_stored_as(Problem p, int rows) {
  const Problem whole = p;
  for (int r = 0; r < rows;) {
    const int left = rows - r;
    // No fewer than three at the end of many: the decoding is the same for one.
    const int taken = left <= 6 ? left : std::min(left - 3, 6);
    switch (taken) {
      case 1:
        stored_rows<Stored, 1, 4>(p);
        break;
      case 2:
        stored_rows<Stored, 2, 2>(p);
        break;
      case 3:
        stored_rows<Stored, 3, 2>(p);
        break;
      case 4:
        stored_rows<Stored, 4, 1>(p);
        break;
      case 5:
        stored_rows<Stored, 5, 1>(p);
        break;
      default:
        stored_rows<Stored, 6, 1>(p);
        break;
    }
    r += taken;
    p.next_b = nullptr;  // on its way
    p.a += taken * p.a_stride;
    p.c += taken * p.c_stride;
    if (p.scale != nullptr) p.scale += taken;
  }
  if constexpr (Stored::has_nan_codes) {
    if (has_nan_code(whole.b, whole.depth * whole.b_stride)) spread_nan(whole, rows);
  }
}

}  // namespace

void multiply_stored_avx2(KvDtype dtype, const float* a, int a_stride, const std::byte* b,
                          const std::byte* next_b, float* c, const float* scale, int rows,
                          int depth, int columns) {
  const auto with = [&](auto stored) {
    using Stored = decltype(stored);
    multiply_stored_as<Stored>({.a = a,
                                .a_stride = a_stride,
                                .b = reinterpret_cast<Bytes>(b),
                                .b_stride = static_cast<std::ptrdiff_t>(columns) * Stored::bytes,
                                .next_b = reinterpret_cast<Bytes>(next_b),
                                .c = c,
                                .c_stride = columns,
                                .scale = scale,
                                .depth = depth,
                                .columns = columns},
                               rows);
  };
  switch (dtype) {
    case KvDtype::float32:
      return with(Float32Stored{});
    case KvDtype::float16:
      return with(Float16Stored{});
    case KvDtype::bfloat16:
      return with(Bfloat16Stored{});
    case KvDtype::fp8:
      return with(Fp8Stored{});
    case KvDtype::int8:
      return with(Int8Stored{});
  }
}

}  // namespace octet
