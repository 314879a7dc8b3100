package view

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// benchmarkRecord is a plan beside the original settings, the loader and single changes.
type benchmarkRecord struct {
	Setting    benchmarkSetting    `json:"setting"`
	Original   *side               `json:"original"`
	Plan       side                `json:"plan"`
	Speedup    *spreadOf           `json:"speedup"`
	CPUSpeedup *spreadOf           `json:"cpu_speedup"`
	Loader     []loading           `json:"loader"`
	Options    []option            `json:"options"`
	Bottleneck *diagnosis.Finding  `json:"bottleneck"`
	NextChange string              `json:"next_change"`
	Findings   []diagnosis.Finding `json:"findings"`
	Profile    []string            `json:"profile"`
	Notes      []string            `json:"notes"`
	Stopped    bool                `json:"stopped"`
	Unfinished []string            `json:"unfinished"`
	TooFew     bool                `json:"too_few_rounds"`
	Verdict    string              `json:"verdict"`
}

type benchmarkSetting struct {
	Model      string            `json:"model"`
	Device     string            `json:"device"`
	Versions   map[string]string `json:"versions"`
	Date       string            `json:"date"`
	RowKind    units.RowKind     `json:"row_kind"`
	EpochClips int               `json:"epoch_clips"`
	Batch      int               `json:"effective_batch"`
	Steps      int               `json:"steps"`
	Rounds     int               `json:"rounds"`
	WarmUp     int               `json:"warm_up"`
	Minutes    *float64          `json:"minutes"`
}

// spreadOf is a median with the lowest and the highest of what was measured.
type spreadOf diagnosis.Gain

// side is one way to train, in all its blocks; without blocks Problem says why.
type side struct {
	Name     string         `json:"name"`
	Settings map[string]any `json:"settings"`
	Clips    int            `json:"clips"`
	AudioS   *float64       `json:"audio_s"`
	Blocks   []struct {
		Steps []struct {
			MicroBatches int `json:"micro_batches"`
		} `json:"steps"`
	} `json:"blocks"`
	Readings  diagnosis.Readings `json:"readings"`
	Problem   string             `json:"problem"`
	Adapted   string             `json:"adapted"`
	ClipsPerS *spreadOf          `json:"clips_per_s"`
	AudioPerS *spreadOf          `json:"audio_per_s"`
	StepS     *spreadOf          `json:"step_s"`
	CPUUse    *spreadOf          `json:"cpu_use"`
	Padding   *float64           `json:"padding"`
	Shares    map[string]float64 `json:"shares"`
	Peak      *float64           `json:"peak_bytes"`
}

type loading struct {
	Workers   int       `json:"workers"`
	Prefetch  *int      `json:"prefetch"`
	ClipsPerS spreadOf  `json:"clips_per_s"`
	AudioPerS *spreadOf `json:"audio_per_s"`
	StartS    float64   `json:"start_s"`
	AgainS    float64   `json:"again_s"`
}

// option is one change to the plan. Verdict is "faster", "slower", …; WhyNot is why it was not
// tried.
type option struct {
	Option  string    `json:"option"`
	Value   string    `json:"value"`
	Gain    *spreadOf `json:"gain"`
	CPUGain *spreadOf `json:"cpu_gain"`
	Problem string    `json:"problem"`
	WhyNot  string    `json:"why_not"`
	Better  bool      `json:"better"`
	Verdict string    `json:"verdict"`
}

// factor is "3.00×".
func factor(gain float64) string { return fmt.Sprintf("%.2f×", gain) }

// gained is "1.20× (1.10 to 1.31)".
func gained(s spreadOf) string {
	if s.Low == s.High {
		return factor(s.Median)
	}
	return fmt.Sprintf("%s (%.2f to %.2f)", factor(s.Median), s.Low, s.High)
}

// spanned is "66.7 (60.1 to 70)".
func (s spreadOf) spanned(text func(float64) string) string {
	if s.Low == s.High {
		return text(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", text(s.Median), text(s.Low), text(s.High))
}

func (s spreadOf) middle() string { return short(s.Median) }

// shape returns "batch 8 × 4, fp16", with ", checkpointing" where that is on.
func (s side) shape() string {
	text, precision := "batch "+s.batch(), "fp32"
	for _, half := range []string{"fp16", "bf16"} {
		if s.Settings[half] == true {
			precision = half
		}
	}
	if s.Settings["gradient_checkpointing"] == true {
		precision += ", checkpointing"
	}
	return text + ", " + precision
}

func (s side) batch() string {
	return s.setting("per_device_train_batch_size") + " × " +
		s.setting("gradient_accumulation_steps")
}

func (s side) setting(name string) string {
	if value := s.Settings[name]; value != nil {
		return fmt.Sprint(value)
	}
	return unknown
}

// microBatches are those of a step: "2", "2 to 4".
func (s side) microBatches() string {
	low, high := 0, 0
	for _, b := range s.Blocks {
		for _, step := range b.Steps {
			if low == 0 || step.MicroBatches < low {
				low = step.MicroBatches
			}
			high = max(high, step.MicroBatches)
		}
	}
	switch {
	case high == 0:
		return unknown
	case low == high:
		return fmt.Sprintf("%d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
