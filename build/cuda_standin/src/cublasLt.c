/* cuBLASLt: descriptors without contents, and one algorithm that needs no workspace. torch brings its own workspace. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

#define DESCRIPTOR(name, type, ...)                                         \
	cublasStatus_t cublasLt##name##Create(type *made, ##__VA_ARGS__) {  \
		*made = calloc(1, sizeof **made);                           \
		return *made ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED; \
	}                                                                   \
	cublasStatus_t cublasLt##name##Destroy(type made) {                 \
		free(made);                                                 \
		return CUBLAS_STATUS_SUCCESS;                               \
	}
DESCRIPTOR(MatmulDesc, cublasLtMatmulDesc_t, cublasComputeType_t compute, cudaDataType_t scale)
DESCRIPTOR(MatrixLayout, cublasLtMatrixLayout_t, cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride)
DESCRIPTOR(MatmulPreference, cublasLtMatmulPreference_t)

static cublasLtMatmulHeuristicResult_t only_algorithm(void) {
	return (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1.0f};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
					      cublasLtMatmulPreference_t preference, int wanted,
					      cublasLtMatmulHeuristicResult_t results[], int *found) {
	*found = wanted > 0;
	if (*found) results[0] = only_algorithm();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
				       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
				       const cublasLtMatmulAlgo_t *algorithm,
				       cublasLtMatmulHeuristicResult_t *result) {
	*result = only_algorithm();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
						    cublasLtMatmulAlgoConfigAttributes_t name, void *value, size_t size,
						    size_t *written) {
	if (value) memset(value, 0, size);
	if (written) *written = size;
	return CUBLAS_STATUS_SUCCESS;
}
