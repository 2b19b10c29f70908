# The CUDA backend: nvcc from the PATH, CUDACXX or the toolkit's usual folder; cudart linked statically,
# so that the program starts on a machine without a driver. Kernels are compiled ahead of time.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(OCTET_NVCC nvcc HINTS /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER ${OCTET_NVCC})
endif()
# Every kernel is compiled for Hopper, whose wgmma needs the architecture-specific sm_90a; those of
# any GPU (all but *_sm90*, src/CMakeLists.txt) for these as well. Fewer compile faster.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
set(OCTET_CUDA_ARCHITECTURES "80;89;100;120" CACHE STRING
    "Compute capabilities beside 90a that the portable kernels are compiled for")
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "the CUDA backend needs nvcc 13; ${CMAKE_CUDA_COMPILER} is "
                      "${CMAKE_CUDA_COMPILER_VERSION}")
endif()
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc 13 has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
# Registers and spills of every kernel are printed, so that a spill does not go unseen.
foreach(option -Xptxas=-v -Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr)
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:${option}>)
endforeach()
