// Package runlog is what a monitor saw of a training run: plain data that the sampler writes and
// that forecasts, diagnosis and reports read. Sizes are bytes, times are seconds from the monitor's
// start (monotonic) unless a name says otherwise.
package runlog

import (
	"fmt"
	"math"
	"reflect"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Version is that of the JSON of a Log; a reader refuses others.
const Version = 1

// Log is a whole run as a monitor saw it. Long runs are kept at a lower resolution, never
// truncated.
type Log struct {
	Version        int            `json:"version"`
	StartUnixNanos int64          `json:"start_unix_nanos"` // wall clock of time 0
	DurationS      float64        `json:"duration_s"`       // to the newest sample
	IntervalS      float64        `json:"interval_s"`       // of the sampler
	Samples        uint64         `json:"samples"`
	Errors         uint64         `json:"errors"` // failed readings
	GPUs           []GPU          `json:"gpus"`
	Host           Host           `json:"host"`
	Memory         MemorySeries   `json:"memory"`
	Activity       ActivitySeries `json:"activity"`
	Steps          StepSeries     `json:"steps"`
	Events         []Event        `json:"events"`
	Alerts         []Alert        `json:"alerts"`
}

// GPU is what does not change about a GPU; 0 and "" where the driver does not report it.
type GPU struct {
	Name        string  `json:"name"`
	UUID        string  `json:"uuid"`
	TotalBytes  uint64  `json:"total_bytes"` // 0 when it never answered
	PowerLimitW float64 `json:"power_limit_w"`
	MaxClockMHz float64 `json:"max_clock_mhz"` // of the multiprocessors
	MIG         bool    `json:"mig"`
}

// Host is what does not change about the host. Limits of a container are applied; 0 when unknown.
type Host struct {
	TotalBytes    uint64 `json:"total_bytes"`
	CPUs          int    `json:"cpus"`
	ShmTotalBytes uint64 `json:"shm_total_bytes"` // of /dev/shm
	Contained     bool   `json:"contained"`       // the total is a container's limit
}

// MemorySeries is the fast series: one entry per point, the highest value of the samples that a
// point covers.
type MemorySeries struct {
	TimesS       []float64 `json:"times_s"`         // time of each point's first sample, rising
	SamplesPoint int       `json:"samples_a_point"` // samples that a point covers
	HostUsed     Column    `json:"host_used_bytes"`
	GPUUsed      []Column  `json:"gpu_used_bytes"`
}

// ActivitySeries is the slow series, about one entry a second. A point is the mean of what it
// covers for rates and shares, the highest for bytes and temperatures, all bits for throttling.
type ActivitySeries struct {
	TimesS []float64 `json:"times_s"`
	// share of all cores that the process may use, 0 to 1
	CPUShare Column `json:"cpu_share"`
	// share of the same cores that this process and its descendants use
	TreeCPU       Column      `json:"tree_cpu_share"`
	BusiestCore   Column      `json:"busiest_core"`         // its share of the time, 0 to 1
	HostAvailable Column      `json:"host_available_bytes"` // the lowest of what a point covers
	SwapUsed      Column      `json:"swap_used_bytes"`
	TreeRSS       Column      `json:"tree_rss_bytes"`    // of this process and its descendants
	WorkersRSS    Column      `json:"workers_rss_bytes"` // of the descendants alone
	ShmUsed       Column      `json:"shm_used_bytes"`
	DiskRead      Column      `json:"disk_read_bytes_s"`
	DiskWritten   Column      `json:"disk_written_bytes_s"`
	Received      Column      `json:"net_received_bytes_s"`
	Sent          Column      `json:"net_sent_bytes_s"`
	GPUs          []GPUSeries `json:"gpus"`
}

// GPUSeries is the slow series of one GPU. Shares are 0 to 1.
type GPUSeries struct {
	Utilization Column `json:"utilization"` // share of the time that a kernel ran, 0 to 1
	// share of the time that its memory was read or written
	MemoryBusy Column `json:"memory_busy"`
	// mean over multiprocessors of the share of the time that they had work; from Hopper on
	SMActive Column `json:"sm_active"`
	// share of the time that tensor cores computed; from Hopper on
	TensorActive Column `json:"tensor_active"`
	PowerW       Column `json:"power_w"`
	Temperature  Column `json:"temperature_c"`
	ClockMHz     Column `json:"clock_mhz"`
	// bits of why the clock is held back: 1 power, 2 heat, 4 brake, 8 a setting
	Throttle Column `json:"throttle"`
	PCIeIn   Column `json:"pcie_received_bytes_s"`
	PCIeOut  Column `json:"pcie_sent_bytes_s"`
	NVLink   Column `json:"nvlink_bytes_s"`
	ECC      Column `json:"ecc_uncorrected"` // errors since the driver's start
	Others   Column `json:"others_bytes"`    // memory of other processes on the same card
}

// Reasons why a GPU's clock is held back.
const (
	ThrottlePower   = 1 << iota // the power limit
	ThrottleHeat                // temperature
	ThrottleBrake               // an external brake, of the power supply for one
	ThrottleSetting             // a clock set by someone
)

// Throttle is one of those reasons in words for people.
type Throttle struct {
	Bit  int    `json:"bit"`
	Name string `json:"name"`
}

// Throttles are all reasons.
var Throttles = []Throttle{{ThrottlePower, "power limit"}, {ThrottleHeat, "heat"},
	{ThrottleBrake, "power brake"}, {ThrottleSetting, "a clock that was set"}}

// StepSeries has one entry per optimizer step, evaluation batch or checkpoint that was reported. Of
// long runs every n-th is kept, with the highest sizes, the sum of the times and the largest batch
// of those between.
type StepSeries struct {
	Number   []uint64  `json:"number"`
	TimesS   []float64 `json:"times_s"`  // when they ended
	Kind     []string  `json:"kind"`     // "train", "evaluation" or "checkpoint"
	Covers   []int     `json:"covers"`   // steps in this entry
	SpentS   Column    `json:"spent_s"`  // time since the step before
	WaitedS  Column    `json:"waited_s"` // the part of it that was spent waiting for the loader
	AudioS   Column    `json:"audio_s"`  // seconds of audio without padding
	PaddedS  Column    `json:"padded_s"`
	LongestS Column    `json:"longest_s"` // length of the longest clip
	// time that the model's arithmetic takes at the GPU's published rate
	ArithmeticS   Column `json:"arithmetic_s"`
	GPU           []int  `json:"gpu"` // -1: none
	Allocated     Column `json:"allocated_bytes"`
	Reserved      Column `json:"reserved_bytes"`
	PeakAllocated Column `json:"peak_allocated_bytes"` // since the step before
	PeakReserved  Column `json:"peak_reserved_bytes"`
	Headroom      Column `json:"headroom_bytes"`
}

// Kinds of steps.
const (
	KindTrain      = "train"
	KindEvaluation = "evaluation"
	KindCheckpoint = "checkpoint"
)

// Second is one reading of the slow series, as the forecasts get it. NaN: not known.
type Second struct {
	HostReading
	AtS                 float64
	HostTotal, ShmTotal float64 // bytes
	CPU                 CPUUse
	GPUs                []GPUSecond
}

// CPUUse is how the processor cores were shared since the reading before. NaN: not known.
type CPUUse struct {
	Cores   float64 // that this process may use
	Others  float64 // of them, used by other processes than this one and its descendants
	Waiting float64 // threads of this process that were ready and waited for a core, on average
}

// GPUSecond is the memory of one GPU in a Second.
type GPUSecond struct{ Total, Used, Free, Others float64 }

// Step is one entry of StepSeries, as the training tells of it. NaN: not known.
type Step struct {
	Number                                                  uint64
	AtS                                                     float64
	Kind                                                    string
	SpentS, WaitedS, AudioS, PaddedS, LongestS, ArithmeticS float64
	GPU                                                     int // -1: none
	Allocated, Reserved, PeakAllocated, PeakReserved        float64
	DriverFree, Total                                       float64 // of the GPU, newest sample
}

// LowHeadroom is the share of a card of which less is little, where a step leaves it at its peak.
const LowHeadroom = 0.03

// HeadroomAtPeak is what the i-th entry left at its peak: less than at its end, when most of the
// memory has been freed again.
func (s *StepSeries) HeadroomAtPeak(i int) float64 {
	freed := s.PeakAllocated[i] - s.Allocated[i]
	if math.IsNaN(freed) {
		return s.Headroom[i]
	}
	return max(0, s.Headroom[i]-max(0, freed))
}

// Event is something that happened once.
type Event struct {
	AtS  float64 `json:"at_s"`
	Kind string  `json:"kind"`
	GPU  int     `json:"gpu"`  // -1: none
	Text string  `json:"text"` // a sentence without a full stop
}

// Kinds of events.
const (
	// no samples for a while: the machine slept, or the process was stopped
	EventGap       = "gap"
	EventClock     = "clock"      // the wall clock jumped
	EventLost      = "gpu_lost"   // a GPU stopped answering
	EventBack      = "gpu_back"   // and answers again
	EventUnread    = "unreadable" // something of the host cannot be read, said once for each thing
	EventNonsense  = "nonsense"   // a reading that cannot be true
	EventXID       = "xid"        // an error that the driver reports
	EventECC       = "ecc"
	EventThrottled = "throttled"
	EventOOM       = "out_of_memory"
	EventCleanUp   = "clean_up"
	EventTraining  = "training" // begin, end, evaluation, checkpoint, as the training tells
)

// Alert is a warning of what will happen, or has begun to happen. Fields that do not apply to its
// kind are absent.
type Alert struct {
	ID       uint64   `json:"id"` // from 1, rising
	AtS      float64  `json:"at_s"`
	Kind     string   `json:"kind"`
	GPU      int      `json:"gpu"`      // -1: the host
	Severity string   `json:"severity"` // "warn" or "critical"
	Since    *uint64  `json:"since_step"`
	SinceS   *float64 `json:"since_s"`
	PerStep  *float64 `json:"bytes_per_step"`
	PerS     *float64 `json:"bytes_per_s"`
	Steps    *float64 `json:"steps_left"`
	Seconds  *float64 `json:"seconds_left"`
	Text     string   `json:"text"`      // what it warns of, with its numbers
	Advice   string   `json:"advice"`    // one concrete change
	ClearedS *float64 `json:"cleared_s"` // when it no longer held; absent while it does
}

// Severities of an alert.
const (
	SeverityWarn     = "warn"
	SeverityCritical = "critical" // out of memory within a minute or ten steps
)

// AdviceEvaluation is what to do where an evaluation keeps its outputs; models with a decoder give
// them as a tuple.
const AdviceEvaluation = "set eval_accumulation_steps=16, or " +
	"preprocess_logits_for_metrics=lambda logits, labels: " +
	"logits[0].argmax(-1) if isinstance(logits, tuple) else logits.argmax(-1)"

// Kinds of alerts.
const (
	AlertLeak          = "leak"          // GPU memory grows step by step at equal lengths
	AlertLength        = "length"        // it grows with the length of clips
	AlertFragmentation = "fragmentation" // reserved grows, allocated does not
	AlertFull          = "full"          // little headroom
	AlertEvaluation    = "evaluation"    // an evaluation gathers memory
	AlertCheckpoint    = "checkpoint"    // saving takes more than is left
	AlertHostRAM       = "host_ram"
	AlertWorkersRAM    = "workers_ram" // of DataLoader workers
	AlertShm           = "shm"         // /dev/shm
	AlertSwap          = "swap"
	AlertOthers        = "other_process" // another process takes memory of the card
	// threads wait for cores that other processes use
	AlertCPU = "cpu_contention"
)

// Check refuses a run log that does not hold together, as its file may have been changed: what
// reads it takes that for granted. Errors: Corrupt.
func (s *Log) Check() error {
	wrong := wrongIn("", reflect.ValueOf(s).Elem(), -1)
	switch {
	case wrong != "":
	case len(s.Memory.GPUUsed) != len(s.GPUs) || len(s.Activity.GPUs) != len(s.GPUs):
		wrong = fmt.Sprintf("its columns are not those of %d GPUs", len(s.GPUs))
	case s.DurationS < 0:
		wrong = fmt.Sprintf("it lasts %g s", s.DurationS)
	default:
		return nil
	}
	return fault.New(fault.Corrupt, "take another copy of the file",
		"the run log does not hold together: %s", wrong)
}

// wrongIn finds columns of a series that do not have the entries of its times, and numbers whose
// sums and products would not be finite.
func wrongIn(path string, v reflect.Value, entries int) (wrong string) {
	switch v.Kind() {
	case reflect.Struct:
		if times := v.FieldByName("TimesS"); times.IsValid() {
			entries = times.Len()
		}
		for i := 0; i < v.NumField() && wrong == ""; i++ {
			wrong = wrongIn(path+"."+v.Type().Field(i).Tag.Get("json"), v.Field(i), entries)
		}
	case reflect.Slice:
		inner := v.Type().Elem().Kind()
		if column := inner != reflect.Struct && inner != reflect.Slice; column && entries >= 0 &&
			v.Len() != entries {
			return fmt.Sprintf("%s has %d entries, not %d", path[1:], v.Len(), entries)
		}
		for i := 0; i < v.Len() && wrong == ""; i++ {
			if inner == reflect.Float64 && !(math.Abs(v.Index(i).Float()) > largest) {
				continue // the most of them
			}
			wrong = wrongIn(fmt.Sprintf("%s[%d]", path, i), v.Index(i), entries)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return wrongIn(path, v.Elem(), entries)
		}
	case reflect.Float64:
		if math.Abs(v.Float()) > largest {
			return fmt.Sprintf("%s = %g is not a finite number", path[1:], v.Float())
		}
	}
	return wrong
}
