/* Streams and events: all work is done when it is asked for, so that nothing is ever waited for. */
#include "standin.h"
#include <stdlib.h>
#include <time.h>

struct CUstream_st {
	int priority;
};

struct CUevent_st {
	struct timespec recorded;
};

/* Streams 0, 1 and 2 are the default ones: numbers, not objects. */
static int is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
	*stream = calloc(1, sizeof **stream);
	if (!*stream) return set_error(cudaErrorMemoryAllocation);
	(*stream)->priority = priority;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
	if (!is_default(stream)) free(stream);
	return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
	*priority = is_default(stream) ? 0 : stream->priority;
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaSuccess; }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
	return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned int flags) {
	callback(stream, cudaSuccess, data);
	return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
	function(data);
	return cudaSuccess;
}

/* Graph capture has no meaning here: no stream is ever capturing. */
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
	*status = cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
				     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
#if CUDART_VERSION >= 13000
				     const cudaGraphEdgeData **edges,
#endif
				     size_t *dependency_count) {
	return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
	static __thread enum cudaStreamCaptureMode kept;
	enum cudaStreamCaptureMode before = kept;
	kept = *mode;
	*mode = before;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
	*event = calloc(1, sizeof **event);
	return *event ? cudaSuccess : set_error(cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
	free(event);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
	clock_gettime(CLOCK_MONOTONIC, &event->recorded);
	return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
	return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
	double seconds = (double)(end->recorded.tv_sec - start->recorded.tv_sec);
	*milliseconds = (float)(seconds * 1e3 + (double)(end->recorded.tv_nsec - start->recorded.tv_nsec) / 1e6);
	return cudaSuccess;
}
