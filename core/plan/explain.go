package plan

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Explained is a plan with what it was made from; all but Config may be unknown.
type Explained struct {
	Config   profile.Config    `json:"config"`
	Hardware *profile.Hardware `json:"hardware"`
	Dataset  *profile.Dataset  `json:"dataset"`
	Loss     LossFacts         `json:"loss"`
	Labels   *LabelFacts       `json:"labels"` // absent where they were not checked
	// the training has the guard
	Guarded bool `json:"guarded"`
	// the process that asks: what it holds of a GPU is not taken by others
	PID uint32 `json:"pid"`
}

// LossFacts are what decides on a model's loss and predictions.
type LossFacts struct {
	ClassName string `json:"class_name"` // "Wav2Vec2ForCTC"; "" when unknown
	// ctc_loss_reduction of its config; absent where the user may still choose
	Reduction  *string `json:"reduction"`
	Vocabulary int64   `json:"vocabulary"` // 0 when unknown
	// frames of the shortest and of the longest clip; absent of models that make none
	Frames *[2]int64 `json:"frames"`
	// a decoder's positions limit its texts
	Decodes bool `json:"decodes"`
}

// LabelFacts are what a check of all texts found.
type LabelFacts struct {
	Model      string   `json:"model"`
	Limit      string   `json:"limit"` // "frames" of CTC, or "positions" of a decoder
	Unit       string   `json:"unit"`  // "characters" or "tokens"
	Checked    int      `json:"checked"`
	Infeasible int      `json:"infeasible"` // texts that do not fit
	First      string   `json:"first"`      // of them; "" for none
	Longest    int64    `json:"longest"`    // labels
	Findings   []string `json:"findings"`   // what else is wrong
}

// Explanation is what a plan says beside its settings.
type Explanation struct {
	Decisions []DecisionRow `json:"decisions"` // in the order in which they are read
	Memory    Memory        `json:"memory"`
	Cautions  []Caution     `json:"cautions"` // the most serious first
	// overridden settings that the predictions do not know of
	Stale []string `json:"stale"`
}

// DecisionRow is a decision as it is shown; its value is the setting's now.
type DecisionRow struct {
	Group string `json:"group"`
	profile.Decision
	Planned    string `json:"planned"` // value of the plan
	Overridden bool   `json:"overridden"`
}

// Memory is that of the tightest device. The parts add up to the peak.
type Memory struct {
	Parts       []profile.Part `json:"parts"`
	PeakBytes   int64          `json:"peak_bytes"`
	HighBytes   *int64         `json:"high_bytes"`   // absent where no orders were simulated
	BudgetBytes *int64         `json:"budget_bytes"` // absent where a plan has none
	TotalBytes  *uint64        `json:"total_bytes"`  // absent where it is not known
	OthersBytes uint64         `json:"others_bytes"` // in use before the training
}

// PredictedFor are the settings that predicted memory and times hold for: once one is overridden,
// they no longer do.
var PredictedFor = []string{"per_device_train_batch_size", "gradient_accumulation_steps",
	"device_count", "micro_batching", "micro_batch_size", "fp16", "bf16", "tf32",
	"gradient_checkpointing", "every_n_layers", "offload_checkpoints", "torch_compile",
	"attn_implementation", "freeze_feature_encoder", "lora_rank", "optimizer", "length_handling",
	"group_by_length", "max_length_s", "chunk_length_s", "distributed"}

// Explain says what follows from a plan and what it was made from.
func Explain(e Explained) (Explanation, error) {
	x := &explainer{Explained: e, Explanation: Explanation{Decisions: e.rows(),
		Memory: e.memory(), Stale: []string{}}}
	for _, row := range x.Decisions {
		if row.Overridden && slices.Contains(PredictedFor, row.Setting) {
			x.Stale = append(x.Stale, row.Setting)
		}
	}
	x.Cautions = x.cautions()
	slices.SortStableFunc(x.Decisions, func(a, b DecisionRow) int {
		_, first := group(a.Setting)
		_, second := group(b.Setting)
		return cmp.Compare(first, second)
	})
	return x.Explanation, nil
}

// explainer is an explanation in the making.
type explainer struct {
	Explained
	Explanation
}

// groups of settings, in the order in which they are read; what is in none comes last.
var groups = []struct {
	name     string
	settings []string
}{
	{"Batch and memory", []string{"per_device_train_batch_size", "gradient_accumulation_steps",
		"gradient_checkpointing", "every_n_layers", "offload_checkpoints", "micro_batching",
		"micro_batch_size", "micro_batch_overhead_s", "micro_batch_host_s", "rule", "target_batch_size",
		"freeze_feature_encoder", "lora_rank", "per_device_eval_batch_size",
		"eval_accumulation_steps", "device_count", "distributed", "devices", "safety_margin",
		"gpu_memory_bytes", "budget_bytes", "model_memory_bytes", "predicted_bytes",
		"predicted_high_bytes", "memory_parts", "alloc_conf"}},
	{"Precision and kernels", []string{"fp16", "bf16", "tf32", "attn_implementation",
		"torch_compile", "cudnn_benchmark", "cudnn_attention", "deterministic"}},
	{"Data and loader", []string{"length_handling", "length_buckets", "group_by_length",
		"max_length_s", "chunk_length_s", "streaming", "cache_dataset", "dataloader_num_workers",
		"dataloader_prefetch_factor", "dataloader_pin_memory", "dataloader_persistent_workers"}},
	{"Optimizer", []string{"optimizer", "learning_rate", "lr_scaling", "warmup_ratio",
		"weight_decay", "max_grad_norm", "num_train_epochs"}},
	{"Evaluation and checkpoints", []string{"eval_steps", "eval_samples", "save_steps"}},
}

// group is that of a setting, with the place at which the setting is read.
func group(setting string) (name string, place int) {
	for _, g := range groups {
		if at := slices.Index(g.settings, setting); at >= 0 {
			return g.name, place + at
		}
		place += len(g.settings)
	}
	return "Other", place
}

// rows are the decisions with the settings' values now.
func (e Explained) rows() []DecisionRow {
	rows, fields := make([]DecisionRow, len(e.Config.Decisions)), fieldsByJSONName(&e.Config)
	for i, d := range e.Config.Decisions {
		rows[i] = DecisionRow{Decision: d, Planned: d.Value}
		rows[i].Group, _ = group(d.Setting)
		// lists are written by the planner alone, and a plan may decide on what is no setting
		if now, ok := fields[d.Setting]; ok && now.Kind() != reflect.Slice {
			rows[i].Value = show(d.Setting, now)
		}
		rows[i].Overridden = rows[i].Value != d.Value
	}
	return rows
}

// memory is read from the plan, and from the hardware what others hold and a CPU's RAM.
func (e Explained) memory() Memory {
	c := e.Config
	m := Memory{Parts: e.parts(), PeakBytes: c.PredictedBytes, HighBytes: c.PredictedHighBytes,
		TotalBytes: c.GPUMemoryBytes}
	if c.BudgetBytes != 0 {
		m.BudgetBytes = &c.BudgetBytes
	}
	sum := int64(0)
	for _, part := range m.Parts {
		sum += part.Bytes
	}
	m.PeakBytes = max(m.PeakBytes, sum)
	switch {
	case e.Hardware == nil:
	case c.GPUName == "":
		m.TotalBytes = &e.Hardware.Memory.TotalBytes
		m.OthersBytes = *m.TotalBytes - e.Hardware.Memory.AvailableBytes
	default:
		for _, g := range e.Hardware.GPUs {
			if g.Name == c.GPUName && g.MemoryTotalBytes == profile.Or(c.GPUMemoryBytes, 0) {
				m.OthersBytes = max(m.OthersBytes, e.usedByOthers(g))
			}
		}
	}
	return m
}

// parts are the plan's, completed to its peak; where a policy has none, the model and the clips.
func (e Explained) parts() []profile.Part {
	c := e.Config
	switch {
	case len(c.MemoryParts) > 0:
		parts, other := []profile.Part{}, c.PredictedBytes
		for _, part := range c.MemoryParts {
			if part.Bytes > 0 {
				parts, other = append(parts, part), other-part.Bytes
			}
		}
		if other > 0 {
			parts = append(parts, profile.Part{Name: "other", Bytes: other})
		}
		return parts
	case 0 < c.ModelMemoryBytes && c.ModelMemoryBytes < c.PredictedBytes:
		return []profile.Part{{Name: "model and optimizer", Bytes: c.ModelMemoryBytes},
			{Name: "activations", Bytes: c.PredictedBytes - c.ModelMemoryBytes}}
	case c.PredictedBytes > 0:
		return []profile.Part{{Name: "training", Bytes: c.PredictedBytes}}
	}
	return []profile.Part{}
}

// usedByOthers is what is taken of a GPU besides the asking process; 0 of one of the catalogue.
func (e Explained) usedByOthers(g profile.GPU) uint64 {
	if g.MemoryFreeBytes == nil {
		return 0
	}
	taken := int64(g.MemoryTotalBytes) - int64(*g.MemoryFreeBytes)
	for _, p := range g.Processes {
		if p.PID == e.PID {
			taken -= int64(profile.Or(p.MemoryBytes, 0))
		}
	}
	return uint64(max(0, taken))
}
