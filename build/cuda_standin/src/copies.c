/* Copies and fills are real: device memory is memory of this process. */
#define _GNU_SOURCE
#include "standin.h"
#include <string.h>
#include <sys/mman.h>

static uint64_t copy_limit = UINT64_MAX;

/* Larger copies are left out, for trainings whose values do not matter. */
void standin_set_copy_limit(uint64_t bytes) { copy_limit = bytes; }

static cudaError_t copy(void *to, const void *from, size_t bytes) {
	if (bytes && (!to || !from)) return set_error(cudaErrorInvalidValue);
	if (bytes <= copy_limit && to != from) memmove(to, from, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
	return copy(to, from, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
	return copy(to, from, bytes);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
				cudaStream_t stream) {
	return copy(to, from, bytes);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
			      size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
	for (size_t row = 0; row < height; row++)
		memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
	return cudaSuccess;
}

/* Whole pages of zeros go back to the system, which gives zeros again: gradients cleared on a large model take no RAM.
 * Only in cudaMalloc's own private memory; shared mappings (virtual_memory.c) would keep their contents. */
static void clear(char *start, size_t bytes) {
	struct range range;
	char *first = (char *)UP((uintptr_t)start, PAGE), *end = start + bytes;
	char *last = (char *)((uintptr_t)end / PAGE * PAGE);
	if (last <= first || !ranges_find(start, &range) || range.kind != DEVICE) {
		memset(start, 0, bytes);
		return;
	}
	memset(start, 0, first - start);
	madvise(first, last - first, MADV_DONTNEED);
	memset(last, 0, end - last);
}

cudaError_t cudaMemset(void *start, int value, size_t bytes) {
	if (bytes && !start) return set_error(cudaErrorInvalidValue);
	if (!(value & 0xff) && bytes >= (1 << 20)) clear(start, bytes);
	else if (bytes) memset(start, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *start, int value, size_t bytes, cudaStream_t stream) {
	return cudaMemset(start, value, bytes);
}
