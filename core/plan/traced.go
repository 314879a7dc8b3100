package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Traced is what a traced step of the model takes with one candidate: exact where the estimate from the config is not.
type Traced struct {
	Precision     string          `json:"precision"`
	Checkpointing bool            `json:"gradient_checkpointing"`
	EveryNLayers  int             `json:"every_n_layers"` // with checkpointing: one of so many is computed again; 0 as 1
	Offload       bool            `json:"offload_checkpoints"`
	Optimizer     string          `json:"optimizer"`    // the Trainer's name
	BudgetBytes   int64           `json:"budget_bytes"` // that Memory was found for, context included
	Memory        batching.Limits `json:"memory"`       // the largest micro-batch of clips of up to this length
	Peaks         []TracedPeak    `json:"peaks"`        // of micro-batches of the longest clips, by rising size; none where no clip fits
	EvalBatch     *int            `json:"eval_batch"`   // largest evaluation batch of the longest clips; absent when not asked for
	Note          string          `json:"note"`         // what the trace assumed, for the user; "" for nothing
	OneLength     bool            `json:"one_length"`   // nothing is known of other lengths, so that no batch can be split by length
	Work          []TracedWork    `json:"work"`         // of a short clip alone and of a usual micro-batch, for their times; none where no times are known
	HighBytes     *int64          `json:"high_bytes"`   // worst peak of whole runs in several orders; absent when none was simulated
}

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
	Unknown []string `json:"unknown"` // operations that no rule counts
	kernel.Work
}

func (w TracedWork) held() float64 { return float64(w.Batch) * w.Seconds }

// NotTraced says why a model was not traced, as the middle of a sentence, and what to do so that it is, as a sentence.
type NotTraced struct {
	Why string `json:"why"`
	Fix string `json:"fix"`
}

func (t Traced) check() error {
	if err := t.Memory.Check(); err != nil {
		return err
	}
	rising := slices.IsSortedFunc(t.Peaks, func(a, b TracedPeak) int { return a.Batch - b.Batch })
	wrong := slices.ContainsFunc(t.Peaks, func(p TracedPeak) bool { return p.Batch < 1 || p.Bytes < 1 || p.Bytes > maxPartBytes })
	if !rising || wrong || len(t.Peaks) == 0 && t.Memory[0].Batch > 0 {
		return fault.New(fault.InvalidArgument, "trace again", "the traced peaks are not bytes of increasing micro-batches")
	}
	if len(t.Work) != 0 && (len(t.Work) != 2 || !(t.Work[0].Batch > 0 && t.Work[0].Seconds > 0 && t.Work[0].held() < t.Work[1].held() && t.Work[1].held() < maxHeld)) {
		return fault.New(fault.InvalidArgument, "trace again", "the traced work is not that of a short clip and of a larger micro-batch")
	}
	if t.BudgetBytes < 1 || t.EvalBatch != nil && *t.EvalBatch < 1 || t.HighBytes != nil && *t.HighBytes < 1 {
		return fault.New(fault.InvalidArgument, "trace again", "a traced budget of %d bytes, or an evaluation batch or a worst peak below 1", t.BudgetBytes)
	}
	return nil
}

// Warnings say what the trace assumed, and which operations it times by rules that it does not have.
func (t Traced) Warnings(timed bool) (out []string) {
	for _, text := range []string{t.Note, t.unknownWarning(timed)} {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

// unknownWarning names the operations whose times are those of their bytes alone; "" for none.
func (t Traced) unknownWarning(timed bool) string {
	if !timed || len(t.Work) == 0 || len(t.Work[1].Unknown) == 0 {
		return ""
	}
	names := t.Work[1].Unknown
	more := ""
	if len(names) > mostNamed {
		more = fmt.Sprintf(" and %d more", len(names)-mostNamed)
		names = names[:mostNamed]
	}
	return fmt.Sprintf("There is no rule for the time of %s%s: the bytes that they move count, so that the step may take longer.", strings.Join(names, ", "), more)
}

const mostNamed = 5

const maxHeld = 1e9 // seconds of audio in a micro-batch

// Largest is about the largest micro-batch of clips of so many seconds, the longest, that fits: as traced up to a step's share, beyond it as
// far as the traced peaks rise with the batch.
func (t Traced) Largest(seconds float64) int {
	fits, rise := t.Memory.Largest(seconds), int64(0)
	last := t.Peaks[len(t.Peaks)-1]
	if len(t.Peaks) > 1 {
		before := t.Peaks[len(t.Peaks)-2]
		rise = (last.Bytes - before.Bytes) / int64(last.Batch-before.Batch)
	}
	if fits < last.Batch || rise < 1 || t.OneLength {
		return fits
	}
	return last.Batch + int(max(0, t.BudgetBytes-last.Bytes)/rise)
}

// peak is that of a micro-batch, or of the next larger one that was traced.
func (t Traced) peak(batch int) (TracedPeak, bool) {
	i := slices.IndexFunc(t.Peaks, func(p TracedPeak) bool { return p.Batch >= batch })
	if i < 0 {
		return TracedPeak{}, false
	}
	return t.Peaks[i], true
}
