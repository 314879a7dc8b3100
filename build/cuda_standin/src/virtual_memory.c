/* The driver's virtual-memory calls, on which expandable segments stand: reserved addresses, physical memory, mappings.
 *
 * Physical memory is a part of one file in RAM without a limit, so that a handle can be mapped at any address, again
 * and again, and keeps its contents. Parts are never used twice: 64 bits of offsets do not run out.
 */
#define _GNU_SOURCE
#include "standin.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct physical {
	uint64_t offset, size;
	int device, mappings, released;
};

struct mapping {
	char *start;
	uint64_t size;
	struct physical *memory;
	struct mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;
static uint64_t next_offset;
static int file = -1;

/* Called with the lock held. */
static int open_file(void) {
	if (file < 0) file = memfd_create("cuda_standin", MFD_CLOEXEC);
	return file >= 0 && !ftruncate(file, (off_t)next_offset);
}

CUresult cuMemAddressReserve(CUdeviceptr *start, size_t size, size_t alignment, CUdeviceptr wanted,
			     unsigned long long flags) {
	if (!size || size % GRANULE) return CUDA_ERROR_INVALID_VALUE;
	struct range range = {new_addresses(size, alignment > GRANULE ? alignment : GRANULE, PROT_NONE), size, -1, RESERVED};
	if (!range.start) return CUDA_ERROR_OUT_OF_MEMORY;
	ranges_add(range);
	*start = (CUdeviceptr)range.start;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr start, size_t size) {
	struct range range;
	if (!ranges_find((void *)start, &range) || range.size != size) return CUDA_ERROR_INVALID_VALUE;
	if (!ranges_remove((void *)start, 1 << RESERVED, &range)) return CUDA_ERROR_INVALID_VALUE;
	munmap(range.start, range.size);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
				       CUmemAllocationGranularity_flags option) {
	*granularity = GRANULE;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
		     unsigned long long flags) {
	int device = properties->location.id;
	if (!size || size % GRANULE || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
	    device >= standin_card_count)
		return CUDA_ERROR_INVALID_VALUE;
	/* torch always asks for memory that could be exported as a file, and hardly ever exports it, which is not supported. */
	if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
	if (!charge(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
	struct physical *memory = calloc(1, sizeof *memory);
	pthread_mutex_lock(&lock);
	uint64_t offset = next_offset;
	next_offset += size;
	int ready = memory && open_file();
	pthread_mutex_unlock(&lock);
	if (!ready) {
		free(memory);
		refund(device, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = (struct physical){.offset = offset, .size = size, .device = device};
	*handle = (CUmemGenericAllocationHandle)memory;
	return CUDA_SUCCESS;
}

/* Memory goes back when it was released and is mapped nowhere. Called with the lock held. */
static void free_unused(struct physical *memory) {
	if (!memory->released || memory->mappings) return;
	fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)memory->offset, (off_t)memory->size);
	refund(memory->device, memory->size);
	free(memory);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
	struct physical *memory = (struct physical *)handle;
	if (!memory || memory->released) return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	memory->released = 1;
	free_unused(memory);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr start, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags) {
	struct physical *memory = (struct physical *)handle;
	struct range range;
	if (!memory || offset + size > memory->size || !ranges_find((void *)start, &range) || range.kind != RESERVED ||
	    (char *)start + size > range.start + range.size)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping *mapping = malloc(sizeof *mapping);
	if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	void *mapped = mmap((void *)start, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
			    (off_t)(memory->offset + offset));
	if (mapped == MAP_FAILED) {
		pthread_mutex_unlock(&lock);
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*mapping = (struct mapping){(char *)start, size, memory, mappings};
	mappings = mapping;
	memory->mappings++;
	pthread_mutex_unlock(&lock);
	ranges_set_device((void *)start, memory->device);
	return CUDA_SUCCESS;
}

/* Whether whole mappings, and nothing else, fill the range. Called with the lock held. */
static int filled_exactly(const char *start, size_t size) {
	size_t covered = 0;
	for (struct mapping *m = mappings; m; m = m->next) {
		if (m->start + m->size <= start || m->start >= start + size) continue;
		if (m->start < start || m->start + m->size > start + size) return 0;
		covered += m->size;
	}
	return covered == size;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
	char *start = (char *)address;
	pthread_mutex_lock(&lock);
	if (!filled_exactly(start, size)) {
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	mmap(start, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	for (struct mapping **link = &mappings; *link;) {
		struct mapping *m = *link;
		if (m->start < start || m->start >= start + size) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		m->memory->mappings--;
		free_unused(m->memory);
		free(m);
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* Reading or writing before this call is an error on a card, and a fault here. */
CUresult cuMemSetAccess(CUdeviceptr start, size_t size, const CUmemAccessDesc *access, size_t count) {
	int protection = PROT_NONE;
	pthread_mutex_lock(&lock);
	int valid = filled_exactly((char *)start, size);
	pthread_mutex_unlock(&lock);
	if (!valid) return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection = PROT_READ | PROT_WRITE;
	return mprotect((void *)start, size, protection) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
