/* Kernels are registered and launched as the compiler's own code asks for; a launch returns at once and does nothing. */
#include "standin.h"
#include <string.h>

#define MAX_NESTED 16
struct launch {
	dim3 grid, block;
	size_t shared;
	void *stream;
};
static __thread struct launch pending[MAX_NESTED];
static __thread int pending_count;
static void *no_binary[4];

void **__cudaRegisterFatBinary(void *binary) { return no_binary; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *a,
			    void *b, void *c, void *d, int *warp) {
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
		       int constant, int global) {
}

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
	if (pending_count == MAX_NESTED) return cudaErrorInvalidConfiguration;
	pending[pending_count++] = (struct launch){grid, block, shared, stream};
	return cudaSuccess;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
	if (!pending_count) return cudaErrorInvalidConfiguration;
	struct launch launch = pending[--pending_count];
	*grid = launch.grid;
	*block = launch.block;
	*shared = launch.shared;
	*(void **)stream = launch.stream;
	return cudaSuccess;
}

/* A kernel that asks for more than a block can have fails to launch, as on a card. */
static cudaError_t launch(dim3 grid, dim3 block) {
	uint64_t threads = (uint64_t)block.x * block.y * block.z;
	if (!threads || threads > 1024 || !grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535)
		return set_error(cudaErrorInvalidConfiguration);
	return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
			     cudaStream_t stream) {
	return launch(grid, block);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
					cudaStream_t stream) {
	return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
	return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments, 0, config->stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
			       cudaStream_t stream) {
	return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
	*kernel = (cudaKernel_t)host;
	return cudaSuccess;
}

/* Registers and shared memory of a kernel are in its binary, which is not read: a middling kernel's. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
	const struct card *card = &standin_cards[current_device()];
	memset(attributes, 0, sizeof *attributes);
	attributes->maxThreadsPerBlock = 1024;
	attributes->numRegs = 32;
	attributes->ptxVersion = attributes->binaryVersion = card->major * 10 + card->minor;
	attributes->maxDynamicSharedSizeBytes = 48 << 10;
	return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute name, int value) {
	return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int block_size,
							  size_t shared) {
	const struct card *card = &standin_cards[current_device()];
	if (block_size <= 0) return set_error(cudaErrorInvalidValue);
	int fit = card->threads_per_multiprocessor / (int)UP(block_size, 32);
	*blocks = fit < card->blocks_per_multiprocessor ? fit : card->blocks_per_multiprocessor;
	return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int block_size,
								   size_t shared, unsigned int flags) {
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, block_size, shared);
}

cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
