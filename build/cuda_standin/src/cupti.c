/* CUPTI: torch.profiler starts and stops, and there is nothing to record. */
#include <cupti_activity.h>
#include <cupti_version.h>

CUptiResult cuptiGetVersion(uint32_t *version) {
	*version = CUPTI_API_VERSION;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
	*text = "not supported by the stand-in CUPTI";
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
	*dropped = 0;
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t size, CUpti_Activity **record) {
	return CUPTI_ERROR_MAX_LIMIT_REACHED;
}
