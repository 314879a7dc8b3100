/* Error codes of this thread, their names, and the calls without a meaning. */
#include "standin.h"
#include <pthread.h>
#include <string.h>

static __thread cudaError_t last_error;

cudaError_t set_error(cudaError_t error) {
	if (error != cudaSuccess) last_error = error;
	return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
	cudaError_t error = last_error;
	last_error = cudaSuccess;
	return error;
}

#define MAX_NOTES 512
static const char *notes[MAX_NOTES];
static int note_count;
static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;

void standin_note(const char *name) {
	pthread_mutex_lock(&notes_lock);
	int i = 0;
	while (i < note_count && strcmp(notes[i], name)) i++;
	if (i == note_count && i < MAX_NOTES) notes[note_count++] = name;
	pthread_mutex_unlock(&notes_lock);
}

/* Names noted so far; Python asks one by one until NULL. */
const char *standin_noted(int index) {
	pthread_mutex_lock(&notes_lock);
	const char *name = index >= 0 && index < note_count ? notes[index] : NULL;
	pthread_mutex_unlock(&notes_lock);
	return name;
}

static const struct {
	cudaError_t code;
	const char *name, *text;
} known[] = {
	{cudaSuccess, "cudaSuccess", "no error"},
	{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
	{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
	{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
	{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "memory was not registered"},
	{cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported by the stand-in CUDA runtime"},
};

const char *cudaGetErrorName(cudaError_t error) {
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].code == error) return known[i].name;
	return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error) {
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].code == error) return known[i].text;
	return "unknown error";
}
