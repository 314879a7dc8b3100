/* cuBLAS: handles that keep their modes. Products do nothing. */
#include <cublas_v2.h>
#include <stdlib.h>

struct cublasContext {
	cublasMath_t math;
	cublasPointerMode_t pointers;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
	*handle = calloc(1, sizeof **handle);
	return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
	*mode = handle->math;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
	handle->math = mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
	*mode = handle->pointers;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
	handle->pointers = mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
	*version = CUBLAS_VERSION;
	return CUBLAS_STATUS_SUCCESS;
}
