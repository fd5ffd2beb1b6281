// KINTSUGI_HOST_DEVICE: marks code that is compiled for the host by any compiler and for the device by nvcc. On the host it is part of its caller:
// files that are compiled for a vector width must not leave a copy of it to others.
#pragma once

#if defined(__CUDACC__)
#define KINTSUGI_HOST_DEVICE __host__ __device__ inline
#else
#define KINTSUGI_HOST_DEVICE __attribute__((always_inline)) inline
#endif
