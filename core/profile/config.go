package profile

// SchemaVersion is the version of a saved Config. Readers refuse newer ones and unknown keys.
const SchemaVersion = 1

// Config is a whole training configuration. Field names are those of transformers.TrainingArguments where one exists.
type Config struct {
	SchemaVersion int    `json:"schema_version"`
	Policy        string `json:"policy"` // the rule set that made it: "published"
	Preset        string `json:"preset"` // "balanced", "speed" or "reproducible"

	TargetBatchSize           int `json:"target_batch_size"` // samples per optimizer step that were asked for
	DeviceCount               int `json:"device_count"`      // GPUs that share one optimizer step; 1 on a CPU
	PerDeviceTrainBatchSize   int `json:"per_device_train_batch_size"`
	GradientAccumulationSteps int `json:"gradient_accumulation_steps"`
	PerDeviceEvalBatchSize    int `json:"per_device_eval_batch_size"`

	FP16                  bool `json:"fp16"`
	BF16                  bool `json:"bf16"`
	TF32                  bool `json:"tf32"`
	GradientCheckpointing bool `json:"gradient_checkpointing"`
	TorchCompile          bool `json:"torch_compile"`
	CudnnBenchmark        bool `json:"cudnn_benchmark"`
	Deterministic         bool `json:"deterministic"` // full_determinism of the Trainer

	DataloaderNumWorkers        int  `json:"dataloader_num_workers"`
	DataloaderPrefetchFactor    *int `json:"dataloader_prefetch_factor"` // batches per worker; absent without workers
	DataloaderPinMemory         bool `json:"dataloader_pin_memory"`
	DataloaderPersistentWorkers bool `json:"dataloader_persistent_workers"`

	Streaming      bool     `json:"streaming"`        // read the dataset as a stream instead of preparing it whole
	CacheDataset   bool     `json:"cache_dataset"`    // keep decoded audio
	ChunkLengthS   *float64 `json:"chunk_length_s"`   // cut longer clips; absent when no clip needs it
	GroupByLength  bool     `json:"group_by_length"`  // batches of similar length
	LearningRate   float64  `json:"learning_rate"`    // after scaling
	LRScaling      string   `json:"lr_scaling"`       // "sqrt", "linear" or "none"
	NumTrainEpochs float64  `json:"num_train_epochs"` // may be a fraction
	WarmupRatio    float64  `json:"warmup_ratio"`     // 0..1 of all optimizer steps
	WeightDecay    float64  `json:"weight_decay"`
	MaxGradNorm    float64  `json:"max_grad_norm"`
	Optimizer      string   `json:"optimizer"` // Trainer's name: "adamw_torch", "adamw_bnb_8bit", "adafactor", "sgd"
	Seed           int      `json:"seed"`

	SafetyMargin     float64 `json:"safety_margin"`      // share of GPU memory that the plan may use, 0.70..0.95
	GPUName          string  `json:"gpu_name"`           // "" on a CPU
	GPUMemoryBytes   *uint64 `json:"gpu_memory_bytes"`   // of the smallest GPU planned for; absent on a CPU
	ModelMemoryBytes int64   `json:"model_memory_bytes"` // parameters + gradients + optimizer state, by the policy
	PredictedBytes   int64   `json:"predicted_bytes"`    // model memory + batch memory at the chosen micro-batch, by the policy

	Decisions []Decision `json:"decisions"`
	Warnings  []string   `json:"warnings"` // what the user should know before starting
}

// Decision is one setting with the numbers that led to it.
type Decision struct {
	Setting string `json:"setting"` // JSON name of the field
	Value   string `json:"value"`   // as shown to people
	Reason  string `json:"reason"`  // one sentence, with its numbers and units
}
