/* NVML: what torch's allocator, torch.cuda and this project's own library ask for. A device's handle is its number + 1.
 * The toolkit's wheels bring no header for it, so that the few declarations are here.
 */
#include "standin.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

/* nvmlGpuFabricInfoV_t up to the field that says how far the fabric's set-up is. */
struct fabric_info {
	unsigned int version;
	unsigned char cluster[16];
	int status;
	unsigned int clique;
	unsigned char state;
};

static int device_of(const void *handle) {
	uintptr_t number = (uintptr_t)handle;
	return number >= 1 && number <= (uintptr_t)standin_card_count ? (int)number - 1 : -1;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned int flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
	return error == SUCCESS ? "Success" : error == INVALID_ARGUMENT ? "Invalid Argument" : "Not Supported";
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
	*version = CUDART_VERSION;
	return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlSystemGetDriverVersion(char *text, unsigned int size) {
	snprintf(text, size, "stand-in");
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
	*count = (unsigned int)standin_card_count;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
	if (index >= (unsigned int)standin_card_count) return INVALID_ARGUMENT;
	*handle = (void *)(uintptr_t)(index + 1);
	return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
	unsigned int domain, bus;
	if (sscanf(text, "%x:%x", &domain, &bus) != 2 || bus < 4) return INVALID_ARGUMENT;
	return nvmlDeviceGetHandleByIndex_v2(bus - 4, handle);
}

int nvmlDeviceGetIndex(void *handle, unsigned int *index) {
	int device = device_of(handle);
	if (device < 0) return INVALID_ARGUMENT;
	*index = (unsigned int)device;
	return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned int size) {
	int device = device_of(handle);
	if (device < 0) return INVALID_ARGUMENT;
	if (strlen(standin_cards[device].name) >= size) return INSUFFICIENT_SIZE;
	strcpy(text, standin_cards[device].name);
	return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned int size) {
	int device = device_of(handle);
	if (device < 0) return INVALID_ARGUMENT;
	char hex[4 + 36 + 1] = "GPU-", *end = hex + 4; /* bytes in hexadecimal, in groups of 4, 2, 2, 2 and 6 */
	for (int i = 0; i < 16; i++) {
		if (i >= 4 && i <= 10 && i % 2 == 0) *end++ = '-';
		end += sprintf(end, "%02x", standin_uuid_byte(device, i));
	}
	if (strlen(hex) >= size) return INSUFFICIENT_SIZE;
	strcpy(text, hex);
	return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
	int device = device_of(handle);
	if (device < 0) return INVALID_ARGUMENT;
	*major = standin_cards[device].major;
	*minor = standin_cards[device].minor;
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
	int device = device_of(handle);
	if (device < 0) return INVALID_ARGUMENT;
	uint64_t total = standin_cards[device].memory_bytes, used = standin_used_bytes(device);
	*memory = (struct memory){total, total > used ? total - used : 0, used};
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
	struct memory info;
	int result = nvmlDeviceGetMemoryInfo(handle, &info);
	if (result != SUCCESS) return result;
	*memory = (struct memory_v2){memory->version, info.total, 0, info.free, info.used};
	return SUCCESS;
}

/* Expandable segments ask whether the card belongs to a fabric: state 0, it does not. */
int nvmlDeviceGetGpuFabricInfoV(void *handle, struct fabric_info *info) {
	if (device_of(handle) < 0) return INVALID_ARGUMENT;
	info->state = 0;
	info->status = NOT_SUPPORTED;
	info->clique = 0;
	return SUCCESS;
}

/* One process, this one, for the message of torch's out-of-memory errors. */
struct process {
	unsigned int id;
	unsigned long long used;
};

int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned int *count, struct process *processes) {
	int device = device_of(handle);
	if (device < 0) return INVALID_ARGUMENT;
	unsigned int most = *count;
	*count = 1;
	if (!most) return INSUFFICIENT_SIZE;
	processes[0] = (struct process){(unsigned int)getpid(), standin_used_bytes(device) - standin_taken_bytes(device)};
	return SUCCESS;
}

/* Called by torch without asking whether they exist. */
#define WITHOUT(name) int name(void *handle) { standin_note(#name); return device_of(handle) < 0 ? INVALID_ARGUMENT : NOT_SUPPORTED; }
WITHOUT(nvmlDeviceGetNvLinkRemoteDeviceType)
WITHOUT(nvmlDeviceGetNvLinkRemotePciInfo_v2)

/* What drivers have since 450, and this project's library looks for before it uses any function. */
#define UNSUPPORTED(name) int name(void) { return NOT_SUPPORTED; }
UNSUPPORTED(nvmlDeviceGetMigMode)
UNSUPPORTED(nvmlDeviceGetMaxMigDeviceCount)
UNSUPPORTED(nvmlDeviceGetMigDeviceHandleByIndex)
UNSUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
UNSUPPORTED(nvmlDeviceGetMaxClockInfo)
UNSUPPORTED(nvmlDeviceGetUtilizationRates)
UNSUPPORTED(nvmlDeviceGetPowerUsage)
UNSUPPORTED(nvmlDeviceGetTemperature)
UNSUPPORTED(nvmlDeviceGetClockInfo)
UNSUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
UNSUPPORTED(nvmlDeviceGetPcieThroughput)
UNSUPPORTED(nvmlDeviceGetFieldValues)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors)
UNSUPPORTED(nvmlEventSetCreate)
UNSUPPORTED(nvmlDeviceRegisterEvents)
UNSUPPORTED(nvmlEventSetWait_v2)
UNSUPPORTED(nvmlEventSetFree)
