/* NCCL between the devices of one process, as DataParallel uses it: a broadcast copies, sums are left out like kernels.
 *
 * Communicators between processes cannot be made: DistributedDataParallel runs over gloo.
 */
#define __CUDA_BF16_TYPES_EXIST__ /* NCCL 2.20 declares ncclBfloat16 only then */
#include "standin.h"
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

/* What the communicators of one call of ncclCommInitAll share: a broadcast that not all devices have joined yet. */
struct group {
	int size, joined;
	void *buffers[MAX_DEVICES];
};

struct ncclComm {
	struct group *group;
	int rank, device;
};

ncclResult_t ncclGetVersion(int *version) {
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
	return result == ncclSuccess ? "no error" : "not supported by the stand-in NCCL: use the gloo backend";
}

const char *ncclGetLastError(ncclComm_t communicator) {
	return "the stand-in NCCL is for one process: use the gloo backend";
}

/* They live as long as the process, as torch keeps them. */
ncclResult_t ncclCommInitAll(ncclComm_t *made, int count, const int *devices) {
	if (count < 1 || count > MAX_DEVICES) return ncclInvalidArgument;
	struct group *group = calloc(1, sizeof *group);
	if (!group) return ncclSystemError;
	group->size = count;
	for (int i = 0; i < count; i++) {
		if (!(made[i] = malloc(sizeof **made))) return ncclSystemError;
		*made[i] = (struct ncclComm){group, i, devices ? devices[i] : i};
	}
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int *count) {
	*count = communicator->group->size;
	return ncclSuccess;
}

static size_t element_bytes(ncclDataType_t type) {
	switch (type) {
	case ncclInt8:
	case ncclUint8: return 1;
	case ncclFloat16:
	case ncclBfloat16: return 2;
	case ncclInt64:
	case ncclUint64:
	case ncclFloat64: return 8;
	default: return type > ncclBfloat16 ? 1 : 4;
	}
}

/* torch calls it for each device in turn, from one thread, within ncclGroupStart and ncclGroupEnd. */
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
		       cudaStream_t stream) {
	struct group *group = communicator->group;
	if (root < 0 || root >= group->size) return ncclInvalidArgument;
	group->buffers[communicator->rank] = buffer;
	if (++group->joined < group->size) return ncclSuccess;
	group->joined = 0;
	for (int i = 0; i < group->size; i++)
		if (i != root)
			cudaMemcpy(group->buffers[i], group->buffers[root], count * element_bytes(type), cudaMemcpyDeviceToDevice);
	return ncclSuccess;
}
