// KINTSUGI_HOST_DEVICE: marks code that is compiled for the host by any compiler and for the device by nvcc.
#pragma once

#if defined(__CUDACC__)
#define KINTSUGI_HOST_DEVICE __host__ __device__
#else
#define KINTSUGI_HOST_DEVICE
#endif
