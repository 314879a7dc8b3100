package plan

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Traced is what a traced step of the model takes with one candidate.
type Traced struct {
	Precision     string `json:"precision"`
	Checkpointing bool   `json:"gradient_checkpointing"`
	// with checkpointing: one layer in so many is computed again; 0 as 1
	EveryNLayers int    `json:"every_n_layers"`
	Offload      bool   `json:"offload_checkpoints"`
	Optimizer    string `json:"optimizer"` // the Trainer's name
	// that Memory was found for, context included
	BudgetBytes int64 `json:"budget_bytes"`
	// the largest micro-batch of clips of up to this length
	Memory batching.Limits `json:"memory"`
	// of micro-batches of the longest clips, by rising size; none where no clip fits
	Peaks []TracedPeak `json:"peaks"`
	// of the micro-batches that were asked for by their sizes
	SizePeaks []TracedPeak `json:"size_peaks"`
	// of one more of the longest clips; absent: as the last two peaks rise
	RiseBytes *int64 `json:"rise_bytes"`
	// largest evaluation batch of the longest clips; absent when not asked for
	EvalBatch *int `json:"eval_batch"`
	// what the trace assumed, for the user; "" for nothing
	Note string `json:"note"`
	// nothing is known of other lengths, so that no batch can be split by length
	OneLength bool `json:"one_length"`
	// of a short clip alone, of a usual micro-batch and, if it is there, of the longest clip alone;
	// none where no trace tells
	Work []TracedWork `json:"work"`
	// worst peak of whole runs in several orders; absent when none was simulated
	HighBytes *int64 `json:"high_bytes"`
	// seconds to which the model pads or cuts every clip; 0: clips keep their length
	FixedS float64 `json:"fixed_s"`
	// a layer normalizes over time, so that results depend on padding
	OverTime bool `json:"over_time"`
	// of a model that generates texts; absent for others
	Decoder *TracedDecoder `json:"decoder"`
}

// Recomputed is which layers the traced step computes again.
func (t Traced) Recomputed() profile.Checkpointing {
	return profile.CheckpointingOf(t.Checkpointing, t.EveryNLayers, t.Offload)
}

func (t Traced) candidate() candidate { return candidate{t.Precision, t.Recomputed(), t.Optimizer} }

// TracedPeak is the memory of one micro-batch of the longest clips.
type TracedPeak struct {
	Batch       int            `json:"batch"`
	Bytes       int64          `json:"bytes"`        // of the device, context included
	PinnedBytes int64          `json:"pinned_bytes"` // of the host, for offloaded checkpoints
	Parts       []profile.Part `json:"parts"`
}

// TracedWork is what a micro-batch of clips of a length runs.
type TracedWork struct {
	Batch   int      `json:"batch"`
	Seconds float64  `json:"seconds"`
	Labels  int64    `json:"labels"`  // tokens of a clip's text
	Unknown []string `json:"unknown"` // operations that no rule counts
	kernel.Work
}

// TracedDecoder is what generating a text takes.
type TracedDecoder struct {
	Share      float64 `json:"share"`       // of the model's layers
	Tokens     int64   `json:"tokens"`      // of the longest usual text
	MostTokens int64   `json:"most_tokens"` // that its positions allow; 0 for any
	CacheBytes int64   `json:"cache_bytes"` // keys and values of the texts of an evaluation batch
}

// clipSeconds is how long the clips of a micro-batch last.
func (w TracedWork) clipSeconds() float64 { return float64(w.Batch) * w.Seconds }

// paddedSeconds is the audio that the model computes for them.
func (t Traced) paddedSeconds(w TracedWork) float64 {
	if t.FixedS > 0 {
		return float64(w.Batch) * t.FixedS
	}
	return w.clipSeconds()
}

// NotTraced explains why a model was not traced, as a clause, and how to change that, as a
// sentence.
type NotTraced struct {
	Why string `json:"why"`
	Fix string `json:"fix"`
}

func (t Traced) check() error {
	if err := t.Memory.Check(); err != nil {
		return err
	}
	rising := slices.IsSortedFunc(t.Peaks, func(a, b TracedPeak) int { return a.Batch - b.Batch })
	wrong := slices.ContainsFunc(t.Peaks, func(p TracedPeak) bool {
		return p.Batch < 1 || p.Bytes < 1 || p.Bytes > maxPartBytes
	})
	if !rising || wrong || len(t.Peaks) == 0 && t.Memory[0].Batch > 0 {
		return fault.New(fault.InvalidArgument, "trace again",
			"the traced peaks are not bytes of increasing micro-batches")
	}
	if len(t.Work) != 0 && (len(t.Work) == 1 || len(t.Work) > 3 ||
		!(t.Work[0].Batch > 0 && t.Work[0].Seconds > 0 &&
			t.Work[0].clipSeconds() < t.Work[1].clipSeconds() &&
			t.Work[1].clipSeconds() < maxHeld)) {
		return fault.New(fault.InvalidArgument, "trace again",
			"the traced work is not that of a short clip and of a larger micro-batch")
	}
	if !(t.FixedS >= 0 && t.FixedS <= maxClipS) {
		return fault.New(fault.InvalidArgument, "trace again", "clips are padded to %v s", t.FixedS)
	}
	if t.BudgetBytes < 1 || t.EvalBatch != nil && *t.EvalBatch < 1 ||
		t.HighBytes != nil && *t.HighBytes < 1 {
		return fault.New(fault.InvalidArgument, "trace again",
			"a traced budget of %d bytes, or an evaluation batch or a worst peak below 1",
			t.BudgetBytes)
	}
	return nil
}

// Warnings name what the trace assumed, and which operations it times by rules that it does not
// have.
func (t Traced) Warnings() (out []string) {
	for _, text := range []string{t.Note, t.unknownWarning()} {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

// unknownWarning names the operations whose times are those of their bytes alone; "" for none.
func (t Traced) unknownWarning() string {
	if len(t.Work) == 0 || len(t.Work[1].Unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("There is no rule for the time of %s: the bytes that they move count, "+
		"so that the step may take longer.", units.Listed(t.Work[1].Unknown, ", ", mostNamed))
}

const mostNamed = 5

const maxHeld = 1e9 // seconds of audio in a micro-batch

// Largest returns about the largest micro-batch that fits when its longest clip has so many
// seconds: as traced up to a step's share, beyond it as far as the traced peaks rise with the
// batch.
func (t Traced) Largest(seconds float64) int {
	fits, rise := t.Memory.Largest(seconds), t.rise()
	if len(t.Peaks) == 0 {
		return fits
	}
	last := t.Peaks[len(t.Peaks)-1]
	if fits < last.Batch || rise < 1 || t.OneLength {
		return fits
	}
	return last.Batch + int(max(0, t.BudgetBytes-last.Bytes)/rise)
}

// rise is the bytes of one more of the longest clips; 0 where only one peak was traced. A step of a
// single micro-batch holds no gradients during its forward pass, so peaks of different steps cannot
// be compared.
func (t Traced) rise() int64 {
	if t.RiseBytes != nil {
		return *t.RiseBytes
	}
	if len(t.Peaks) < 2 {
		return 0
	}
	last, before := t.Peaks[len(t.Peaks)-1], t.Peaks[len(t.Peaks)-2]
	return (last.Bytes - before.Bytes) / int64(last.Batch-before.Batch)
}

// bytes are about those of a micro-batch of the longest clips, as the traced peaks rise.
func (t Traced) bytes(batch int) int64 {
	last := t.Peaks[len(t.Peaks)-1]
	return last.Bytes + max(0, t.rise())*int64(batch-last.Batch)
}

// sizePeak is that of a micro-batch that was asked for; nil for others.
func (t Traced) sizePeak(batch int) *TracedPeak {
	for i, p := range t.SizePeaks {
		if p.Batch == batch && p.Bytes > 0 {
			return &t.SizePeaks[i]
		}
	}
	return nil
}

// peak is that of a micro-batch, or of the next larger one that was traced.
func (t Traced) peak(batch int) (TracedPeak, bool) {
	i := slices.IndexFunc(t.Peaks, func(p TracedPeak) bool { return p.Batch >= batch })
	if i < 0 {
		return TracedPeak{}, false
	}
	return t.Peaks[i], true
}
