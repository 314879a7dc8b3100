/* The driver's functions that torch asks the runtime for by name; one without a meaning answers "not supported". */
#include "standin.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A context is its device's number and an offset, so that none is NULL. */
#define FIRST_CONTEXT ((uintptr_t)0x1000)

CUresult cuInit(unsigned int flags) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return (CUresult)cudaDriverGetVersion(version); }
CUresult cuDeviceGetCount(int *count) { return (CUresult)cudaGetDeviceCount(count); }

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	if (ordinal < 0 || ordinal >= standin_card_count) return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice device) {
	return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)name, device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
	*flags = 0;
	*active = 1;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	*context = (CUcontext)(FIRST_CONTEXT + device);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) { return cuDevicePrimaryCtxRetain(context, current_device()); }

CUresult cuCtxSetCurrent(CUcontext context) {
	if (!context) return CUDA_SUCCESS;
	return (CUresult)cudaSetDevice((int)((uintptr_t)context - FIRST_CONTEXT));
}

CUresult cuGetErrorString(CUresult error, const char **text) {
	*text = cudaGetErrorString((cudaError_t)error); /* both count their errors alike */
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
	struct range range;
	if (!ranges_find((void *)address, &range)) return CUDA_ERROR_INVALID_VALUE;
	if (start) *start = (CUdeviceptr)range.start;
	if (size) *size = range.size;
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr address) {
	struct cudaPointerAttributes found;
	cudaPointerGetAttributes(&found, (void *)address);
	if (found.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
	switch (name) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(CUmemorytype *)value = found.type == cudaMemoryTypeHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(void **)value = found.devicePointer; return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = found.device; return CUDA_SUCCESS;
	default: standin_note("cuPointerGetAttribute"); return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuMemsetD32Async(CUdeviceptr start, unsigned int value, size_t count, CUstream stream) {
	for (size_t i = 0; i < count; i++) ((unsigned int *)start)[i] = value;
	return CUDA_SUCCESS;
}

/* Kernels that torch compiles at run time: modules without contents. */
static char module;

CUresult cuModuleLoadData(CUmodule *loaded, const void *image) {
	*loaded = (CUmodule)&module;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule from, const char *name) {
	*function = (CUfunction)&module;
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int x,
			unsigned int y, unsigned int z, unsigned int shared, CUstream stream, void **arguments,
			void **extra) {
	dim3 grid = {grid_x, grid_y, grid_z}, block = {x, y, z};
	return (CUresult)cudaLaunchKernel(f, grid, block, arguments, shared, stream);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int size, size_t shared) {
	return (CUresult)cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, size, shared);
}

/* The rest: torch asks for some 30 names at the first call and uses few. Each gets an address of its own, so that a
 * call can be noted by name. */
#define MAX_NAMELESS 64
static char *nameless[MAX_NAMELESS];
static int nameless_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult not_supported(int slot) {
	standin_note(nameless[slot]);
	return CUDA_ERROR_NOT_SUPPORTED;
}

#define ONE(n) static CUresult slot_##n(void) { return not_supported(0##n); }
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define ALL(X) EIGHT(X, 0) EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3) EIGHT(X, 4) EIGHT(X, 5) EIGHT(X, 6) EIGHT(X, 7)
ALL(ONE) /* 64 functions, numbered in base 8 */
#define ADDRESS(n) slot_##n,
static CUresult (*const slots[MAX_NAMELESS])(void) = {ALL(ADDRESS)};

static void *without_meaning(const char *name) {
	int i = 0;
	pthread_mutex_lock(&lock);
	while (i < nameless_count && strcmp(nameless[i], name)) i++;
	if (i == nameless_count && i < MAX_NAMELESS) nameless[nameless_count++] = strdup(name);
	pthread_mutex_unlock(&lock);
	return i < MAX_NAMELESS ? (void *)slots[i] : NULL;
}

/* torch's callback for the driver's log: there is no log. */
static CUresult accepted(void) { return CUDA_SUCCESS; }

#define NAMED(name) {#name, (void *)name}
static const struct {
	const char *name;
	void *function;
} known[] = {
	NAMED(cuInit), NAMED(cuDriverGetVersion), NAMED(cuDeviceGetCount), NAMED(cuDeviceGet),
	NAMED(cuDeviceGetAttribute), NAMED(cuDevicePrimaryCtxGetState), NAMED(cuDevicePrimaryCtxRetain),
	NAMED(cuCtxGetCurrent), NAMED(cuCtxSetCurrent), NAMED(cuGetErrorString), NAMED(cuPointerGetAttribute),
	NAMED(cuMemsetD32Async), NAMED(cuMemAddressReserve), NAMED(cuMemAddressFree), NAMED(cuMemCreate),
	NAMED(cuMemRelease), NAMED(cuMemMap), NAMED(cuMemUnmap), NAMED(cuMemSetAccess),
	NAMED(cuMemGetAllocationGranularity), {"cuMemGetAddressRange", (void *)cuMemGetAddressRange},
	{"cuLogsRegisterCallback", (void *)accepted}, {"cuLogsUnregisterCallback", (void *)accepted},
};

void *driver_function(const char *name) {
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(name, known[i].name)) return known[i].function;
	return without_meaning(name);
}

static cudaError_t entry_point(const char *name, void **function, enum cudaDriverEntryPointQueryResult *status) {
	*function = driver_function(name);
	if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
	return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned int version,
					     unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *status) {
	return entry_point(name, function, status);
}

#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
				    enum cudaDriverEntryPointQueryResult *status) {
	return entry_point(name, function, status);
}
#endif
