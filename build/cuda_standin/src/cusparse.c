/* cuSPARSE: handles; products of sparse matrices answer that they are not supported. */
#include <cusparse.h>
#include <stdlib.h>

cusparseStatus_t cusparseCreate(cusparseHandle_t *handle) {
	*handle = calloc(1, 1);
	return *handle ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) {
	free(handle);
	return CUSPARSE_STATUS_SUCCESS;
}

const char *cusparseGetErrorString(cusparseStatus_t status) {
	return status == CUSPARSE_STATUS_SUCCESS ? "success" : "not supported by the stand-in cuSPARSE";
}
