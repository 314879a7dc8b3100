package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Caution is what to look out for before a training starts.
type Caution struct {
	// "serious" (training would fail or go wrong), "warning" or "note"
	Level  string `json:"level"`
	Code   string `json:"code"`   // name of the rule
	What   string `json:"what"`   // the case
	Why    string `json:"why"`    // what it leads to; "" where the case says it
	Remedy string `json:"remedy"` // what to do; "" where the case says it
}

const (
	serious, warning, note = "serious", "warning", "note"

	fewFrames   = 5        // 0.1 s: less than any word lasts
	usualTokens = 40       // of a text that was not counted: about ten seconds of speech
	evaluated1k = 1000     // clips whose predictions are counted where a plan does not say how many
	colabBytes  = 13 << 30 // host RAM of Colab's machines without "high RAM": 12.7 GiB
	attachGuard = "Train with asrconfig train or manager.train(trainer), or call " +
		"manager.attach(trainer) before trainer.train()."
)

// cautions are all that apply, the plan's and the dataset's own warnings among them.
func (x *explainer) cautions() []Caution {
	all := []Caution{}
	for _, rule := range []func() *Caution{x.labels, x.labelIDs, x.ctcPath, x.overBudget,
		x.hostMemory, x.overrides, x.otherMachine, x.accumulation, x.evaluation, x.evaluationBatch,
		x.colab, x.badFiles, x.needsGuard, x.changed} {
		if c := rule(); c != nil {
			all = append(all, *c)
		}
	}
	for _, text := range x.Config.Warnings {
		all = append(all, fromText(warning, "plan", text))
	}
	if x.Dataset != nil {
		for _, text := range x.Dataset.Warnings {
			all = append(all, fromText(note, "dataset", text))
		}
	}
	levels := []string{serious, warning, note}
	slices.SortStableFunc(all, func(a, b Caution) int {
		return slices.Index(levels, a.Level) - slices.Index(levels, b.Level)
	})
	return all
}

// fromText is a warning as a caution: its first sentence is what is the case.
func fromText(level, code, text string) Caution {
	first, more, several := strings.Cut(text, ". ")
	if several {
		first += "."
	}
	return Caution{Level: level, Code: code, What: first, Why: more}
}

func (x *explainer) kind() units.RowKind { return x.Config.RowKind }

func (x *explainer) labels() *Caution {
	l := x.Labels
	if l == nil || l.Infeasible == 0 {
		return nil
	}
	c := Caution{serious, "labels", fmt.Sprintf("%d of %d texts do not fit %s.", l.Infeasible,
		l.Checked, l.Model), "The decoder has no positions for the rest of such a text.",
		"Leave out the rows in labels.infeasible_rows, or shorten their texts."}
	if l.Limit == "frames" {
		c.Why = "CTC finds no path through fewer frames than labels: the loss of such a clip is " +
			"infinite."
		c.Remedy = "Leave out the rows in labels.infeasible_rows, or set " +
			"ctc_zero_infinity=True in the model's config."
	}
	if l.First != "" {
		c.Why += " The first: " + l.First + "."
	}
	return &c
}

func (x *explainer) labelIDs() *Caution {
	if x.Labels == nil || len(x.Labels.Findings) == 0 {
		return nil
	}
	_, size := utf8.DecodeRuneInString(x.Labels.Findings[0])
	head, tail := x.Labels.Findings[0][:size], x.Labels.Findings[0][size:]
	c := fromText(serious, "label_ids", strings.ToUpper(head)+tail)
	if others := len(x.Labels.Findings) - 1; others > 0 {
		c.Remedy = fmt.Sprintf("And %d more: print(labels) lists them.", others)
	}
	return &c
}

func (x *explainer) ctcPath() *Caution {
	d, frames := x.Dataset, x.Loss.Frames
	if d == nil || d.MeasuredCount == 0 || x.Labels != nil || frames == nil ||
		!strings.HasSuffix(x.Loss.ClassName, "ForCTC") || frames[0] >= fewFrames {
		return nil
	}
	level, alone := warning, ""
	if frames[0] == 0 {
		level, alone = serious, " A batch of only such clips raises an error."
	}
	return &Caution{level, "ctc_path", fmt.Sprintf("The shortest clip (%.2f s) has %s.", d.MinS,
		fault.Plural(int(frames[0]), "frame")),
		"CTC needs a frame for each label: a text with more has no path, and its loss is infinite." +
			alone,
		"check_labels(dataset, tokenizer=…, model=…) finds such clips; leave them out, or set " +
			"ctc_zero_infinity=True."}
}

// accumulation: a mean loss that the Trainer alone does not divide by the accumulation steps; the
// guard does. Models for CTC have it by their reduction, Whisper always. Of a model known by name
// alone the reduction is what the user will load it with.
func (x *explainer) accumulation() *Caution {
	c, class, reduction := x.Config, x.Loss.ClassName, x.Loss.Reduction
	whisper, several, steps := strings.HasPrefix(class, "Whisper"), []string{},
		c.WithoutGuard().GradientAccumulationSteps
	means := whisper || strings.HasSuffix(class, "ForCTC") && profile.Or(reduction, "mean") == "mean"
	if steps > 1 {
		several = append(several, fmt.Sprintf("%d accumulation steps", steps))
	}
	if c.DeviceCount > 1 {
		several = append(several, fmt.Sprintf("%d processes", c.DeviceCount))
	}
	if x.Guarded || !means || len(several) == 0 {
		return nil
	}
	whose := "The model's loss is a mean"
	if !whisper && reduction == nil {
		whose = "With ctc_loss_reduction='mean' the model's loss is a mean"
	}
	return &Caution{warning, "accumulation", fmt.Sprintf("With %s the Trainer alone makes "+
		"gradients up to %d times too large.", strings.Join(several, " and "),
		steps*c.DeviceCount), whose + " over the micro-batch; it accepts " +
		"num_items_in_batch without dividing by it, and the Trainer then does not divide by the " +
		"steps either, and version 5 multiplies by the processes (transformers issue 47688).",
		attachGuard}
}

func (x *explainer) needsGuard() *Caution {
	c := x.Config
	if c.MicroBatching != memoryMicro {
		return nil
	}
	alone := c.WithoutGuard()
	level, outcome := warning, "they may not fit."
	if x.Guarded {
		level = note
	}
	if c.Unguarded != nil && len(x.Stale) == 0 {
		outcome = fmt.Sprintf("an epoch takes %.2f times as long.", c.Unguarded.TimesLonger)
	} else if c.PerDeviceTrainBatchSize <= c.MicroBatchSize {
		outcome = "they fit, but take longer than predicted."
	}
	return &Caution{level, "guard", fmt.Sprintf("The guard makes this plan's steps: %s %s, "+
		"micro-batches sized by predicted memory.", c.LengthHandling, x.kind().Nouns()),
		fmt.Sprintf("The Trainer alone computes batches of %d × %d %s: %s",
			alone.PerDeviceTrainBatchSize, alone.GradientAccumulationSteps,
			alone.Checkpointing().With(), outcome), attachGuard}
}

func (x *explainer) overBudget() *Caution {
	m := x.Memory
	highest := max(m.PeakBytes, profile.Or(m.HighBytes, 0))
	if m.BudgetBytes == nil || highest <= *m.BudgetBytes || len(x.Stale) > 0 {
		return nil
	}
	level, why, when := warning, "It takes from the safety margin.", ""
	if m.TotalBytes != nil && m.OthersBytes+uint64(highest) > *m.TotalBytes {
		level, why = serious, "It does not fit into the device."
	}
	if m.PeakBytes <= *m.BudgetBytes {
		when = fmt.Sprintf("in the worst of the simulated orders of %s ", x.kind().Nouns())
	}
	return &Caution{level, "over_budget", fmt.Sprintf(
		"The predicted peak %sis %s, over the budget of %s.", when, units.InGiB(highest),
		units.InGiB(*m.BudgetBytes)), why, x.lowerPeak()}
}

// lowerPeak says what takes less memory, of what the plan does not do yet.
func (x *explainer) lowerPeak() string {
	ways := "Leave out the longest " + x.kind().Nouns()
	if !x.Config.GradientCheckpointing {
		ways += ", turn gradient checkpointing on"
	}
	if x.Config.LoRARank == 0 {
		ways += ", train adapters (lora_rank=32)"
	}
	if x.Config.MicroBatchSize > 1 {
		ways += ", lower the micro-batch"
	}
	return ways + ", or take a larger GPU."
}

func (x *explainer) overrides() *Caution {
	if len(x.Stale) == 0 {
		return nil
	}
	step, now := "", x.Config.Effective()
	if now != x.Config.TargetBatchSize {
		step = fmt.Sprintf(": a step has %s instead of %d", x.kind().Count(now),
			x.Config.TargetBatchSize)
	}
	return &Caution{warning, "overrides", fmt.Sprintf("%s changed since the plan was made%s.",
		strings.Join(x.Stale, ", "), step), "Predicted memory, times and alternatives, and the " +
		"learning rate, are those of the original plan.",
		"Plan again with them as options, or check with estimate_memory(…) before you train."}
}

func (x *explainer) otherMachine() *Caution {
	if x.Hardware == nil {
		return nil
	}
	var names []string
	for _, g := range x.Hardware.GPUs {
		if !slices.Contains(names, g.Name) {
			names = append(names, g.Name)
		}
	}
	planned, here := x.Config.GPUName, "no GPU"
	if slices.Contains(names, planned) || planned == "" && len(names) == 0 {
		return nil
	}
	if len(names) > 0 {
		here = strings.Join(names, ", ")
	}
	if planned == "" {
		planned = "the CPU"
	}
	return &Caution{warning, "other_machine", fmt.Sprintf("The plan is for %s; here is %s.",
		planned, here), "Its batch and precision may not fit this device.",
		"Plan again here: manager.plan()."}
}

// evaluation: the Trainer keeps the predictions of an evaluation, which are float32 logits: frames
// or tokens times the size of the vocabulary, padded to the longest.
func (x *explainer) evaluation() *Caution {
	perClip, assumed := x.predictionBytes()
	clips, c := evaluated1k, x.Config
	if x.Dataset != nil {
		clips = min(clips, x.Dataset.SampleCount)
	}
	clips = profile.Or(c.EvalSamples, clips)
	size, short := int64(clips)*perClip, []string{}
	if c.GPUName != "" && c.EvalAccumulationSteps == nil && c.BudgetBytes > 0 &&
		4*size > c.BudgetBytes {
		short = append(short, "GPU memory")
	}
	if h := x.Hardware; h != nil && h.Memory.AvailableBytes > 0 &&
		4*size > int64(h.Memory.AvailableBytes) {
		short = append(short, "host RAM")
	}
	if len(short) == 0 {
		return nil
	}
	until := "all"
	if c.EvalAccumulationSteps != nil {
		until = fmt.Sprintf("those of %d batches on the GPU, all", *c.EvalAccumulationSteps)
	}
	return &Caution{warning, "evaluation", fmt.Sprintf("The predictions of %d evaluated %s take "+
		"at least %s, a quarter or more of the %s.", clips, x.kind().Nouns(), units.InGiB(size),
		strings.Join(short, " and the ")), fmt.Sprintf(
		"The Trainer keeps %s until the evaluation ends; %s.", until, assumed),
		"Use predict_with_generate=True, or preprocess_logits_for_metrics=lambda logits, labels: " +
			"logits[0].argmax(-1) if isinstance(logits, tuple) else logits.argmax(-1)."}
}

// predictionBytes are those of a clip, 0 where they are not known, and what that assumes.
func (x *explainer) predictionBytes() (bytes int64, assumed string) {
	vocabulary := x.Loss.Vocabulary
	switch {
	case x.Loss.Frames != nil:
		frames := x.Loss.Frames[1]
		return 4 * frames * vocabulary, fmt.Sprintf(
			"counted with %d frames × %d labels × 4 B for the longest clip", frames, vocabulary)
	case x.Loss.Decodes:
		tokens := int64(usualTokens)
		if x.Labels != nil && x.Labels.Unit == "tokens" {
			tokens = x.Labels.Longest
		}
		return 4 * tokens * vocabulary,
			fmt.Sprintf("counted with %d tokens × %d × 4 B a clip", tokens, vocabulary)
	}
	return 0, ""
}

func (x *explainer) evaluationBatch() *Caution {
	for _, row := range x.Decisions {
		if row.Setting != "per_device_eval_batch_size" || !row.Overridden {
			continue
		}
		planned := 0
		if _, err := fmt.Sscan(row.Planned, &planned); err == nil &&
			x.Config.PerDeviceEvalBatchSize > planned {
			return &Caution{warning, "evaluation_batch", fmt.Sprintf(
				"Evaluation takes %s %s at once; %d were planned.", row.Value, x.kind().Nouns(),
				planned), "Its activations, and the logits of a whole batch, may not fit " +
				"together with the optimizer's state.", "Lower per_device_eval_batch_size, or " +
				"attach the guard, which computes such batches in pieces."}
		}
	}
	return nil
}

// hostBytes is the RAM of the loader's workers, the batches they hold ready, and of decoded audio
// that is kept.
func (x *explainer) hostBytes() float64 {
	c, d := x.Config, x.Dataset
	workers := float64(c.DataloaderNumWorkers)
	if d == nil {
		return workers * workerBytes
	}
	longest := min(d.MaxS, profile.Or(c.MaxLengthS, d.MaxS), profile.Or(c.ChunkLengthS, d.MaxS))
	ready := float64(profile.Or(c.DataloaderPrefetchFactor, 0)*c.PerDeviceTrainBatchSize) *
		x.kind().Bytes(longest)
	bytes := workers * (workerBytes + ready)
	if c.CacheDataset {
		bytes += float64(d.DecodedBytes) * max(1, workers)
	}
	return bytes
}

func (x *explainer) hostMemory() *Caution {
	if x.Hardware == nil || x.hostBytes() <= float64(x.Hardware.Memory.AvailableBytes) {
		return nil
	}
	return &Caution{serious, "host_memory", fmt.Sprintf("Loading takes about %s of host RAM; %s "+
		"are available.", units.InGiB(x.hostBytes()), units.InGiB(x.Hardware.Memory.AvailableBytes)),
		"Workers, the batches they hold ready and what is kept add up; the system kills a process " +
			"when RAM runs out.", "Fewer dataloader_num_workers, a smaller " +
			"dataloader_prefetch_factor, or cache_dataset = False."}
}

func (x *explainer) colab() *Caution {
	if x.Hardware == nil || x.Hardware.Memory.TotalBytes > colabBytes {
		return nil
	}
	need, available := x.hostBytes(), float64(x.Hardware.Memory.AvailableBytes)
	if need > available || 4*need <= available { // the former is hostMemory's
		return nil
	}
	var takers []string
	if x.Config.DataloaderNumWorkers > 0 {
		takers = append(takers, fault.Plural(x.Config.DataloaderNumWorkers, "loader worker"))
	}
	if x.Config.CacheDataset {
		takers = append(takers, "decoded audio that is kept")
	}
	return &Caution{warning, "colab_ram", fmt.Sprintf("%s take about %s of %s of host RAM.",
		strings.Join(takers, " and "), units.InGiB(need), units.InGiB(x.Hardware.Memory.TotalBytes)),
		"On a machine like Colab's the session ends when RAM runs out, without an error; torch " +
			"and the model take some gigabytes of it, too.", "Keep dataloader_num_workers at 0 " +
			"and cache_dataset at False, and decode clips as they are needed."}
}

func (x *explainer) badFiles() *Caution {
	d := x.Dataset
	if d == nil || d.BadCount == 0 {
		return nil
	}
	noun, verb, level := x.kind().Noun(), "were", note
	if !d.RowKind.AreTexts() {
		noun = "file"
	}
	if d.BadCount == 1 {
		verb = "was"
	}
	if 100*d.BadCount > d.BadCount+d.SampleCount {
		level = warning
	}
	return &Caution{level, "bad_files", fmt.Sprintf("%s cannot be read and %s not counted.",
		fault.Plural(d.BadCount, noun), verb), "Decoding one of them stops the training.",
		"Leave them out, or repair them: bad_files of the dataset's profile says what is wrong " +
			"with each."}
}

func (x *explainer) changed() *Caution {
	var words []string
	for _, row := range x.Decisions {
		if row.Overridden && !slices.Contains(x.Stale, row.Setting) {
			words = append(words, fmt.Sprintf("%s = %s (planned: %s)", row.Setting, row.Value,
				row.Planned))
		}
	}
	if words == nil {
		return nil
	}
	return &Caution{Level: note, Code: "changed",
		What: "Changed since the plan was made: " + strings.Join(words, ", ") + "."}
}
