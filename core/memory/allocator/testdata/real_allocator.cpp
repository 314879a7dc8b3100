// The allocator of an installed PyTorch with CUDA, run without a GPU: this program defines the functions of the CUDA runtime
// and driver that libc10_cuda.so calls, over a device that exists as numbers only. TestAgreesWithPyTorch talks to it.
//
//   S=$(python -c 'import site; print(site.getsitepackages()[0])')
//   g++ -std=c++20 -O1 -rdynamic -I$S/torch/include -I$S/nvidia/cu13/include -I$S/triton/backends/nvidia/include
//       real_allocator.cpp -o real_allocator -L$S/torch/lib -lc10_cuda -lc10 -Wl,-rpath,$S/torch/lib
//       -Wl,-rpath-link,$S/nvidia/cu13/lib
//   ASRCONFIG_REAL_ALLOCATOR=$PWD/real_allocator go test -run PyTorch ./core/memory/allocator
//
// Arguments: bytes that the device has, bytes that it can give, order of addresses (0 rising, 1 falling). The settings
// come in PYTORCH_CUDA_ALLOC_CONF. Input: one event a line, "m BYTES", "f NUMBER" (of the malloc, from 0) or "e" (empty the
// cache). Output: for each event "failed reserved allocated requested retries".
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

static size_t total, limit, given;
static bool falling;
static std::map<uintptr_t, size_t> segments;
static std::map<CUmemGenericAllocationHandle, size_t> pages;

static uintptr_t newAddress(size_t size) {
  static uintptr_t up = uintptr_t(1) << 32, down = uintptr_t(1) << 62;
  const uintptr_t align = uintptr_t(1) << 30;
  size = (size + align - 1) / align * align;
  if (falling) return down -= size;
  up += size;
  return up - size;
}

extern "C" {
#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }

cudaError_t cudaMalloc(void** pointer, size_t size) {
  if (given + size > limit) return cudaErrorMemoryAllocation;
  given += size;
  const uintptr_t address = newAddress(size);
  segments[address] = size;
  *pointer = reinterpret_cast<void*>(address);
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  auto found = segments.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == segments.end()) std::abort();
  given -= found->second;
  segments.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = limit - given;
  *total_bytes = total;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = total;
  properties->major = 8;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { *version = 13020; return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
OK(cudaSetDevice, int)
OK(cudaGetLastError)
OK(cudaStreamSynchronize, cudaStream_t)
OK(cudaDeviceSynchronize)

CUresult fakeReserve(CUdeviceptr* pointer, size_t size, size_t, CUdeviceptr, unsigned long long) {
  *pointer = newAddress(size);
  return CUDA_SUCCESS;
}
CUresult fakeCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*, unsigned long long) {
  static CUmemGenericAllocationHandle next = 1;
  if (given + size > limit) return CUDA_ERROR_OUT_OF_MEMORY;
  given += size;
  pages[next] = size;
  *handle = next++;
  return CUDA_SUCCESS;
}
CUresult fakeRelease(CUmemGenericAllocationHandle handle) {
  auto found = pages.find(handle);
  if (found == pages.end()) std::abort();
  given -= found->second;
  pages.erase(found);
  return CUDA_SUCCESS;
}
CUresult fakeAttribute(int* value, CUdevice_attribute, CUdevice) { *value = 0; return CUDA_SUCCESS; }
CUresult fakeNothing() { return CUDA_SUCCESS; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const std::string name = symbol;
  *function = reinterpret_cast<void*>(&fakeNothing);
  if (name == "cuMemAddressReserve") *function = reinterpret_cast<void*>(&fakeReserve);
  if (name == "cuMemCreate") *function = reinterpret_cast<void*>(&fakeCreate);
  if (name == "cuMemRelease") *function = reinterpret_cast<void*>(&fakeRelease);
  if (name == "cuDeviceGetAttribute") *function = reinterpret_cast<void*>(&fakeAttribute);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}

int main(int, char** arguments) {
  total = std::strtoull(arguments[1], nullptr, 10);
  limit = std::strtoull(arguments[2], nullptr, 10);
  falling = std::atoi(arguments[3]) != 0;
  setenv("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0", 1);  // spares the question what the fabric can share
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  allocator->init(1);
  std::vector<void*> blocks;
  char kind;
  unsigned long long number;
  while (std::scanf(" %c", &kind) == 1) {
    bool failed = false;
    if (kind == 'e') {
      allocator->emptyCache();
    } else if (std::scanf("%llu", &number) != 1) {
      return 1;
    } else if (kind == 'f') {
      allocator->raw_delete(blocks.at(number));
    } else {
      void* pointer = nullptr;
      try {
        pointer = allocator->raw_alloc_with_stream(number, nullptr);
      } catch (const c10::OutOfMemoryError&) {
        failed = true;
      }
      blocks.push_back(pointer);
    }
    const auto stats = allocator->getDeviceStats(0);
    std::printf("%d %lld %lld %lld %lld\n", failed, (long long)stats.reserved_bytes[0].current,
                (long long)stats.allocated_bytes[0].current, (long long)stats.requested_bytes[0].current,
                (long long)stats.num_alloc_retries);
  }
  std::fflush(stdout);
  std::_Exit(0);  // the allocator's own teardown would meet CUDA functions that are not here
}
