// Package profile holds the measured facts and the plan as plain data: what core/hardware,
// core/dataset and core/model produce, what core/plan reads and writes, and what Python mirrors
// field by field. It does no I/O and imports nothing.
//
// A pointer marks a value that may be unknown: absent is never written as zero. Sizes are bytes,
// durations seconds.
package profile

// Hardware is one machine as training sees it: container limits and visible devices already
// applied.
type Hardware struct {
	// the visible devices in CUDA order; empty without a GPU
	GPUs        []GPU  `json:"gpus"`
	NoGPUReason string `json:"no_gpu_reason"` // why there is none, in words; "" with GPUs
	// why CUDA may have selected other GPUs; "" where it has not
	OrderNote     string  `json:"order_note"`
	DriverVersion *string `json:"driver_version"` // NVIDIA driver, "550.54.15"
	// highest CUDA version that the driver supports, "12.4"
	CUDAVersion *string `json:"cuda_version"`
	CPU         CPU     `json:"cpu"`
	Memory      Memory  `json:"memory"`
}

// GPU is one device; a MIG slice is a device of its own. Sizes are bytes as the driver gives them.
type GPU struct {
	Index             int    `json:"index"` // CUDA ordinal among the visible devices
	UUID              string `json:"uuid"`  // "" when planned from the catalogue
	Name              string `json:"name"`  // as the driver reports it, "Tesla T4"
	ComputeCapability string `json:"compute_capability"`
	MemoryTotalBytes  uint64 `json:"memory_total_bytes"` // as the driver reports it
	// absent when planned from the catalogue
	MemoryFreeBytes *uint64 `json:"memory_free_bytes"`
	MemoryUsedBytes *uint64 `json:"memory_used_bytes"`
	// compute processes with their memory; empty where the driver hides them
	Processes []Process `json:"processes"`
	MIG       bool      `json:"mig"` // a slice
	// native bfloat16: compute capability 8.0 or newer
	BF16         bool     `json:"bf16"`
	BandwidthGBs *float64 `json:"bandwidth_gb_s"` // published, 10^9 bytes per second
	// published, dense, fp16 or bf16 with fp32 accumulation
	TensorTFLOPS *float64 `json:"tensor_tflops"`
	FP32TFLOPS   *float64 `json:"fp32_tflops"` // published
	PowerWatts   *float64 `json:"power_watts"` // published board power
	Source       string   `json:"source"`      // "driver" or "catalogue"
}

// Process is one process with memory on a GPU.
type Process struct {
	PID uint32 `json:"pid"`
	// absent where the driver does not report it (MIG, containers, WSL)
	MemoryBytes *uint64 `json:"memory_bytes"`
}

// CPU is the processors that this process may use.
type CPU struct {
	Model         string `json:"model"`
	PhysicalCores int    `json:"physical_cores"` // of the host
	LogicalCores  int    `json:"logical_cores"`  // of the host
	// after affinity and the container's quota; may be a fraction
	UsableCores float64 `json:"usable_cores"`
	// what made usable smaller than logical; "" when nothing did
	LimitSource string `json:"limit_source"`
}

// Memory is host RAM in bytes, within the container's limit.
type Memory struct {
	// the smaller of the host's RAM and the container's limit
	TotalBytes uint64 `json:"total_bytes"`
	// what can be allocated before reclaim fails, within the limit
	AvailableBytes uint64 `json:"available_bytes"`
	HostTotalBytes uint64 `json:"host_total_bytes"` // of the machine
	// the file that set the limit, "/sys/fs/cgroup/…/memory.max"; "" when none
	LimitSource string `json:"limit_source"`
}
