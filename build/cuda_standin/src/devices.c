/* Cards, their figures, and which one is current. */
#include "standin.h"
#include <stdio.h>
#include <string.h>

struct card standin_cards[MAX_DEVICES];
int standin_card_count;
static __thread int current;

int current_device(void) { return current; }

unsigned char standin_uuid_byte(int device, int place) { return (unsigned char)(0x10 + place + device); }

/* Called by Python before torch is imported. */
int standin_add_card(const struct card *card) {
	if (standin_card_count == MAX_DEVICES) return -1;
	standin_cards[standin_card_count++] = *card;
	return standin_card_count;
}

/* Only the driver names it; torch asks for it before it maps expandable segments. */
#define cudaDevAttrVirtualMemory CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED

static int valid(int device) { return device >= 0 && device < standin_card_count; }

cudaError_t cudaGetDeviceCount(int *count) {
	*count = standin_card_count;
	return standin_card_count ? cudaSuccess : set_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device) {
	*device = current;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
	if (!valid(device)) return set_error(cudaErrorInvalidDevice);
	current = device;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

cudaError_t cudaDriverGetVersion(int *version) {
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
	if (!valid(device)) return set_error(cudaErrorInvalidDevice);
	snprintf(text, size, "0000:%02x:00.0", device + 4);
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
	if (!valid(device) || !valid(peer)) return set_error(cudaErrorInvalidDevice);
	*can = device != peer;
	return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
	return valid(peer) && !flags ? cudaSuccess : set_error(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
	if (least) *least = 0;
	if (greatest) *greatest = -5;
	return cudaSuccess;
}

/* The limits that all cards of capability 3.7 and later share come from the programming guide's table. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
	if (!valid(device)) return set_error(cudaErrorInvalidDevice);
	const struct card *card = &standin_cards[device];
	struct cudaDeviceProp p = {
		.totalGlobalMem = card->memory_bytes, .sharedMemPerBlock = 48 << 10, .regsPerBlock = 65536, .warpSize = 32,
		.memPitch = 2147483647, .maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {2147483647, 65535, 65535}, .totalConstMem = 65536, .major = card->major, .minor = card->minor,
		.textureAlignment = 512, .texturePitchAlignment = 32, .multiProcessorCount = card->multiprocessors,
		.canMapHostMemory = 1, .surfaceAlignment = 512, .concurrentKernels = 1, .pciBusID = device + 4,
		.asyncEngineCount = 3, .unifiedAddressing = 1, .l2CacheSize = card->l2_bytes,
		.maxThreadsPerMultiProcessor = card->threads_per_multiprocessor, .streamPrioritiesSupported = 1,
		.globalL1CacheSupported = 1, .localL1CacheSupported = 1,
		.sharedMemPerMultiprocessor = card->shared_per_multiprocessor, .regsPerMultiprocessor = 65536,
		.managedMemory = 1, .concurrentManagedAccess = 1, .computePreemptionSupported = 1,
		.canUseHostPointerForRegisteredMem = 1, .cooperativeLaunch = 1,
		.sharedMemPerBlockOptin = card->shared_per_block_optin,
		.maxBlocksPerMultiProcessor = card->blocks_per_multiprocessor,
		.reservedSharedMemPerBlock = card->major >= 8 ? 1024 : 0, .hostRegisterSupported = 1,
	};
	memcpy(p.name, card->name, sizeof p.name);
	for (int i = 0; i < 16; i++) p.uuid.bytes[i] = (char)standin_uuid_byte(device, i);
	*properties = p;
	return cudaSuccess;
}

static int capability_attribute(const struct card *card, enum cudaDeviceAttr name, int *value) {
	switch ((int)name) {
	case cudaDevAttrMultiProcessorCount: *value = card->multiprocessors; break;
	case cudaDevAttrL2CacheSize: *value = card->l2_bytes; break;
	case cudaDevAttrMaxThreadsPerMultiProcessor: *value = card->threads_per_multiprocessor; break;
	case cudaDevAttrMaxBlocksPerMultiprocessor: *value = card->blocks_per_multiprocessor; break;
	case cudaDevAttrComputeCapabilityMajor: *value = card->major; break;
	case cudaDevAttrComputeCapabilityMinor: *value = card->minor; break;
	case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = card->shared_per_multiprocessor; break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = card->shared_per_block_optin; break;
	case cudaDevAttrReservedSharedMemoryPerBlock: *value = card->major >= 8 ? 1024 : 0; break;
	default: return 0;
	}
	return 1;
}

/* What a card has not (cooperative multi-device launch, memory pools, …) is 0, as on a card without it. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device) {
	if (!valid(device)) return set_error(cudaErrorInvalidDevice);
	if (capability_attribute(&standin_cards[device], name, value)) return cudaSuccess;
	switch ((int)name) {
	case cudaDevAttrMaxThreadsPerBlock:
	case cudaDevAttrMaxBlockDimX:
	case cudaDevAttrMaxBlockDimY: *value = 1024; break;
	case cudaDevAttrMaxBlockDimZ: *value = 64; break;
	case cudaDevAttrMaxGridDimX:
	case cudaDevAttrMaxPitch: *value = 2147483647; break;
	case cudaDevAttrMaxGridDimY:
	case cudaDevAttrMaxGridDimZ: *value = 65535; break;
	case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
	case cudaDevAttrTotalConstantMemory:
	case cudaDevAttrMaxRegistersPerBlock:
	case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
	case cudaDevAttrWarpSize: *value = 32; break;
	case cudaDevAttrTextureAlignment:
	case cudaDevAttrSurfaceAlignment: *value = 512; break;
	case cudaDevAttrPciBusId: *value = device + 4; break;
	case cudaDevAttrAsyncEngineCount: *value = 3; break;
	case cudaDevAttrCanMapHostMemory:
	case cudaDevAttrConcurrentKernels:
	case cudaDevAttrUnifiedAddressing:
	case cudaDevAttrManagedMemory:
	case cudaDevAttrStreamPrioritiesSupported:
	case cudaDevAttrCooperativeLaunch:
	case cudaDevAttrHostRegisterSupported:
	case cudaDevAttrCanUseHostPointerForRegisteredMem:
	case cudaDevAttrVirtualMemory: *value = 1; break;
	default: *value = 0;
	}
	return cudaSuccess;
}
