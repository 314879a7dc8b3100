package device

// Published sizes of NCCL's buffers, which are allocated by the driver, grow with channels,
// connections and communicators, and differ by topology (decimal megabytes in the reports).
const (
	ncclTwo     = 544_000_000   // 2 x A100 over NVLink after one all-reduce (NVIDIA/nccl#964)
	ncclMore    = 688_000_000   // 3 or 4 of them (the same report)
	ncclCluster = 1_600_000_000 // one communicator across machines (NVIDIA/nccl#864)
)

// ncclFigure is the table's answer for one communicator that reduces gradients. Other collectives
// take more: 8 H100 went from 1.06 to 4.34 GB at their first all-to-all (NVIDIA/nccl#1685).
func ncclFigure(gpus *int) Figure {
	f := Figure{
		Name: "nccl", Bytes: ncclMore, Low: ncclTwo, High: ncclCluster, Source: "table",
		Note: "one communicator that all-reduces: 544 MB were measured for 2 GPUs, 688 MB " +
			"for 3 and 4, 1.6 GB across machines",
		References: []string{"NVIDIA/nccl#964", "NVIDIA/nccl#864", "NVIDIA/nccl#1685"},
	}
	if gpus != nil && *gpus == 2 {
		f.Bytes = ncclTwo
	}
	return f
}
