/* The wheels bring the toolkit's headers without this file: what they ask of it, for a plain C compiler. */
#ifndef STANDIN_HOST_DEFINES_H
#define STANDIN_HOST_DEFINES_H
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __location__(a)
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __CUDA_ARCH_HAS_FEATURE__(x) 0
#define CUDARTAPI
#define CUDARTAPI_CDECL
#endif
