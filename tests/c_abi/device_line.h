/* The line of trainer.c in the memory of a device, as a trainer has it there: the host knows addresses, enqueues copies on a stream of
 * its own, and looks at fences. The driver is found where the library finds it, by KINTSUGI_CUDA_LIBRARY: the fake one of the tests, or
 * libcuda.so.1. Its functions as CUDA's public interface has them. */
#ifndef KINTSUGI_TESTS_C_ABI_DEVICE_LINE_H_
#define KINTSUGI_TESTS_C_ABI_DEVICE_LINE_H_

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
  int (*copy_in)(uint64_t, const void*, size_t, void*);
  int (*copy_out)(void*, uint64_t, size_t, void*);
  int (*event_record)(void*, void*);
  int (*event_query)(void*);
  void *stream, *event;
  uint64_t line; /* two doubles on the device */
  double* host;  /* pinned: two doubles, what was read or is to be written */
} device_line;

/* ISO C has no conversion of an object's address to a function's. */
static int find(void* library, const char* symbol, void* function) {
  void* const found = dlsym(library, symbol);
  memcpy(function, &found, sizeof found);
  if (!found) fprintf(stderr, "trainer: the driver has no %s\n", symbol);
  return found != NULL;
}

/* Makes the context as any CUDA program does, before anything of the library's is called. 0: done. */
static int device_line_open(device_line* d) {
  int (*init)(unsigned), (*get)(int*, int), (*retain)(void**, int), (*set)(void*), (*stream)(void**, unsigned), (*event)(void**, unsigned);
  int (*allocate)(uint64_t*, size_t), (*pinned)(void**, size_t, unsigned), device = 0;
  void *context = NULL, *memory = NULL;
  const char* name = getenv("KINTSUGI_CUDA_LIBRARY");
  void* const driver = dlopen(name ? name : "libcuda.so.1", RTLD_NOW);
  if (!driver) return fprintf(stderr, "trainer: %s\n", dlerror());
  if (!find(driver, "cuInit", &init) || !find(driver, "cuDeviceGet", &get) || !find(driver, "cuDevicePrimaryCtxRetain", &retain) ||
      !find(driver, "cuCtxSetCurrent", &set) || !find(driver, "cuStreamCreate", &stream) || !find(driver, "cuEventCreate", &event) ||
      !find(driver, "cuMemAlloc_v2", &allocate) || !find(driver, "cuMemHostAlloc", &pinned) || !find(driver, "cuMemcpyHtoDAsync_v2", &d->copy_in) ||
      !find(driver, "cuMemcpyDtoHAsync_v2", &d->copy_out) || !find(driver, "cuEventRecord", &d->event_record) ||
      !find(driver, "cuEventQuery", &d->event_query))
    return 1;
  if (init(0) || get(&device, 0) || retain(&context, device) || set(context) || stream(&d->stream, 1) || event(&d->event, 2) ||
      allocate(&d->line, 2 * sizeof(double)) || pinned(&memory, 2 * sizeof(double), 0))
    return fprintf(stderr, "trainer: the device refuses\n");
  d->host = memory;
  d->host[0] = d->host[1] = 0;
  return d->copy_in(d->line, d->host, 2 * sizeof(double), d->stream);
}

/* All that was enqueued so far is done. */
static int device_line_await(device_line* d) {
  const struct timespec pause = {0, 20000};
  int state = d->event_record(d->event, d->stream);
  if (state != 0) return state;
  while ((state = d->event_query(d->event)) == 600) nanosleep(&pause, NULL); /* CUDA_ERROR_NOT_READY */
  return state;
}

/* Into `values`, of the host. */
static int device_line_read(device_line* d, double* values) {
  if (d->copy_out(d->host, d->line, 2 * sizeof(double), d->stream) || device_line_await(d)) return 1;
  memcpy(values, d->host, 2 * sizeof(double));
  return 0;
}

/* One of the two numbers, enqueued: done when a fence behind it is. */
static int device_line_write(device_line* d, int which, double value) {
  d->host[which] = value;
  return d->copy_in(d->line + (uint64_t)which * sizeof(double), d->host + which, sizeof(double), d->stream);
}

#endif
