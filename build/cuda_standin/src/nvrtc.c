/* NVRTC: compiles anything to an empty kernel. */
#include <nvrtc.h>

static char program;

nvrtcResult nvrtcVersion(int *major, int *minor) {
	*major = STANDIN_CUDA_VERSION / 1000;
	*minor = STANDIN_CUDA_VERSION % 1000 / 10;
	return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult result) {
	return result == NVRTC_SUCCESS ? "no error" : "not supported by the stand-in NVRTC";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *made, const char *source, const char *name, int header_count,
			       const char *const *headers, const char *const *include_names) {
	*made = (nvrtcProgram)&program;
	return NVRTC_SUCCESS;
}

static nvrtcResult one_byte(size_t *size) {
	*size = 1;
	return NVRTC_SUCCESS;
}

static nvrtcResult empty_text(char *text) {
	*text = 0;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *size) { return one_byte(size); }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size) { return one_byte(size); }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size) { return one_byte(size); }
nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *text) { return empty_text(text); }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *text) { return empty_text(text); }
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *text) { return empty_text(text); }

nvrtcResult nvrtcGetLoweredName(nvrtcProgram p, const char *expression, const char **name) {
	*name = expression;
	return NVRTC_SUCCESS;
}
