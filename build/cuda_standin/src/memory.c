/* Allocations of devices and of pinned host memory, and what is known of an address. */
#include "standin.h"
#include <string.h>
#include <sys/mman.h>

static cudaError_t allocate(void **address, uint64_t bytes, int device, enum range_kind kind) {
	if (!address) return cudaErrorInvalidValue;
	*address = NULL;
	if (!bytes) return cudaSuccess;
	uint64_t size = UP(bytes, GRANULE);
	if (size < bytes || device >= standin_card_count || !charge(device, size)) return cudaErrorMemoryAllocation;
	struct range range = {new_addresses(size, GRANULE, PROT_READ | PROT_WRITE), size, device, kind};
	if (!range.start) {
		refund(device, size);
		return cudaErrorMemoryAllocation;
	}
	ranges_add(range);
	*address = range.start;
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
	return set_error(allocate(address, bytes, current_device(), DEVICE));
}

cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned int flags) {
	return set_error(allocate(address, bytes, current_device(), MANAGED));
}

cudaError_t cudaFree(void *address) {
	struct range range;
	if (!address) return cudaSuccess;
	if (!ranges_remove(address, 1 << DEVICE | 1 << MANAGED, &range)) return set_error(cudaErrorInvalidValue);
	refund(range.device, range.size);
	munmap(range.start, range.size);
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
	uint64_t memory = standin_cards[current_device()].memory_bytes, used = standin_used_bytes(current_device());
	if (total) *total = memory;
	if (free_bytes) *free_bytes = memory > used ? memory - used : 0;
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int flags) {
	*address = NULL;
	if (!bytes) return cudaSuccess;
	uint64_t size = UP(bytes, PAGE);
	struct range range = {new_addresses(size, PAGE, PROT_READ | PROT_WRITE), size, current_device(), HOST};
	if (!range.start) return set_error(cudaErrorMemoryAllocation);
	ranges_add(range);
	*address = range.start;
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

cudaError_t cudaFreeHost(void *address) {
	struct range range;
	if (!address) return cudaSuccess;
	if (!ranges_remove(address, 1 << HOST, &range)) return set_error(cudaErrorInvalidValue);
	munmap(range.start, range.size);
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int flags) {
	if (!address || !bytes) return set_error(cudaErrorInvalidValue);
	ranges_add((struct range){address, bytes, current_device(), REGISTERED});
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *address) {
	struct range range;
	if (ranges_remove(address, 1 << REGISTERED, &range)) return cudaSuccess;
	return set_error(cudaErrorHostMemoryNotRegistered);
}

static enum cudaMemoryType type_of(enum range_kind kind) {
	if (kind == HOST || kind == REGISTERED) return cudaMemoryTypeHost;
	return kind == MANAGED ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
	struct range range;
	memset(attributes, 0, sizeof *attributes);
	if (!ranges_find(address, &range)) {
		attributes->type = cudaMemoryTypeUnregistered;
		attributes->device = cudaInvalidDeviceId;
		attributes->hostPointer = (void *)address;
		return cudaSuccess;
	}
	attributes->type = type_of(range.kind);
	attributes->device = range.device;
	attributes->devicePointer = (void *)address;
	if (attributes->type != cudaMemoryTypeDevice) attributes->hostPointer = (void *)address;
	return cudaSuccess;
}
