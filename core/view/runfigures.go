package view

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// RunFigures are the figures of a run, which core/report computes from its logs. Sizes are bytes,
// times seconds from the run's start.
type RunFigures struct {
	Start    float64 `json:"start_unix_s"`
	Duration float64 `json:"duration_s"`
	GapS     float64 `json:"gap_s"` // without samples
	Gaps     int     `json:"gaps"`
	Samples  int     `json:"samples"`
	Errors   int     `json:"errors"`
	Interval float64 `json:"interval_s"`
	// of all GPUs that report power; gaps between readings are not counted
	EnergyWh *float64      `json:"energy_wh"`
	Steps    StepFigures   `json:"steps"`
	GPUs     []GPUFigures  `json:"gpus"`
	Hosts    []HostFigures `json:"hosts"`
	Alerts   []Alert       `json:"alerts"`
	Events   []Moment      `json:"events"`
	Bands    []Band        `json:"bands"`
	Monitors []string      `json:"monitors"`
	// whether a training began whose end is unknown
	Unfinished bool `json:"unfinished"`
}

// StepFigures are optimizer steps, evaluation batches and checkpoints, with the seconds that they
// took.
type StepFigures struct {
	Train       int      `json:"train"` // optimizer steps
	Evaluation  int      `json:"evaluation"`
	Checkpoint  int      `json:"checkpoint"`
	First       *uint64  `json:"first"` // number of the first optimizer step
	Last        *uint64  `json:"last"`  // number of the last optimizer step
	TrainS      *float64 `json:"train_s"`
	EvaluationS *float64 `json:"evaluation_s"`
	CheckpointS *float64 `json:"checkpoint_s"`
	// optimizer steps a second, over the time of training steps alone
	StepsPerS *float64 `json:"steps_per_s"`
	// seconds of audio a second, over the same time
	AudioRate *float64 `json:"audio_rate"`
	Padding   *float64 `json:"padding"` // share of computed audio that is padding
	// share of time that steps waited for the loader
	Waited *float64 `json:"waited"`
	// share of the time of training steps that the model's arithmetic takes at the GPU's published
	// rate
	MFU         *float64 `json:"model_flops_utilization"`
	LongestClip *float64 `json:"longest_clip_s"`
}

// GPUFigures are the figures of one GPU: bytes, watts, degrees Celsius. Shares are 0 to 1; means
// are over time. Absent: never measured.
type GPUFigures struct {
	Label      string   `json:"label"`
	Name       string   `json:"name"`
	Total      *float64 `json:"total_bytes"`
	UsedMean   *float64 `json:"used_mean_bytes"`
	UsedPeak   *float64 `json:"used_peak_bytes"`
	UsedPeakAt *float64 `json:"used_peak_at_s"`
	Allocated  *float64 `json:"allocated_peak_bytes"`
	Reserved   *float64 `json:"reserved_peak_bytes"`
	// at the peak of a step; what PyTorch's cache holds unused counts as free, where its counters
	// are known
	Headroom     *float64 `json:"headroom_lowest_bytes"`
	HeadroomAt   *float64 `json:"headroom_lowest_at_s"`
	Others       *float64 `json:"others_peak_bytes"`
	Utilization  *float64 `json:"utilization"`
	MemoryBusy   *float64 `json:"memory_busy"`
	SMActive     *float64 `json:"sm_active"`
	TensorActive *float64 `json:"tensor_active"`
	Power        *float64 `json:"power_w"`
	EnergyWh     *float64 `json:"energy_wh"`
	Hottest      *float64 `json:"temperature_peak_c"`
	ClockMHz     *float64 `json:"clock_mhz"`
	// share of time that each reason held the clock back
	Throttled map[string]float64 `json:"throttled"`
}

// HostFigures are the figures of one machine: bytes, bytes a second, shares of 0 to 1. Absent:
// never measured.
type HostFigures struct {
	Label       string   `json:"label"`
	Total       *float64 `json:"total_bytes"`
	CPUs        int      `json:"cpus"`
	Contained   bool     `json:"contained"`
	UsedPeak    *float64 `json:"used_peak_bytes"`
	Available   *float64 `json:"available_lowest_bytes"`
	Tree        *float64 `json:"tree_rss_peak_bytes"`
	Workers     *float64 `json:"workers_rss_peak_bytes"`
	Swap        *float64 `json:"swap_peak_bytes"`
	SharedTotal *float64 `json:"shm_total_bytes"`
	SharedPeak  *float64 `json:"shm_peak_bytes"`
	CPU         *float64 `json:"cpu_share"`
	TreeCPU     *float64 `json:"tree_cpu_share"`
	BusiestCore *float64 `json:"busiest_core"`
	DiskRead    *float64 `json:"disk_read_bytes_s"`
	DiskWritten *float64 `json:"disk_written_bytes_s"`
	NetReceived *float64 `json:"net_received_bytes_s"`
	NetSent     *float64 `json:"net_sent_bytes_s"`
}

// Alert is a warning and its outcome: "came true" (memory ran out, or what was warned of was used
// up, AfterS later), "averted" (cleared by a clean-up), "cleared", or "held" until the end.
type Alert struct {
	runlog.Alert
	Where   string   `json:"where"` // the label of a GPU, "" for the host
	Outcome string   `json:"outcome"`
	AfterS  *float64 `json:"after_s"`
	X       float64  `json:"x,omitempty"`       // on the charts' axis
	UntilX  *float64 `json:"until_x,omitempty"` // absent while it held to the end
}

// Moment is something that happened once.
type Moment struct {
	AtS   float64 `json:"at_s"`
	Kind  string  `json:"kind"`
	Where string  `json:"where"` // the label of a GPU, or ""
	Text  string  `json:"text"`
	X     float64 `json:"x,omitempty"`
}

// Band is a stretch of time that an "evaluation", a "checkpoint" or a "gap" without samples took.
type Band struct {
	BeginS float64 `json:"begin_s"`
	EndS   float64 `json:"end_s"`
	Kind   string  `json:"kind"`
}

// Words are what the band is, and when.
func (b Band) Words() string {
	return fmt.Sprintf("%s, from %s to %s", b.Kind, intoRun(b.BeginS), intoRun(b.EndS))
}
