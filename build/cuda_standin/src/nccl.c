/* NCCL: its version and its errors. Communicators cannot be made; DistributedDataParallel runs over gloo. */
#include <nccl.h>

ncclResult_t ncclGetVersion(int *version) {
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
	return result == ncclSuccess ? "no error" : "not supported by the stand-in NCCL: use the gloo backend";
}

const char *ncclGetLastError(ncclComm_t communicator) {
	return "the stand-in NCCL moves no data: use the gloo backend";
}
