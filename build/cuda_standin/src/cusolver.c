/* cuSOLVER: handles; decompositions answer that they are not supported. */
#include <cusolverDn.h>
#include <stdlib.h>

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle) {
	*handle = calloc(1, 1);
	return *handle ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
	free(handle);
	return CUSOLVER_STATUS_SUCCESS;
}
