package profile

// Model is what planning needs to know of a model. Counts are elements, not bytes.
type Model struct {
	Name string `json:"name"` // as given or found; "" when unknown
	// transformers model_type: "wav2vec2", "whisper", …; "custom" for any other module
	Architecture string `json:"architecture"`
	// class whose parameters were counted, "Wav2Vec2ForCTC"; "" when unknown
	ClassName           string `json:"class_name"`
	TotalParameters     int64  `json:"total_parameters"`
	TrainableParameters int64  `json:"trainable_parameters"`
	HiddenSize          *int   `json:"hidden_size"`
	Layers              *int   `json:"layers"` // transformer layers, encoder plus decoder
	// 4 B x total, or the true storage of a live module
	ParameterBytes int64 `json:"parameter_bytes"`
	GradientBytes  int64 `json:"gradient_bytes"` // 4 B x trainable, or the true storage
	// OptimizerBytes is the optimizer's state by name: "adamw" twice the gradients, "adamw_8bit" 2
	// B x trainable, "adafactor" about 4 B per row and column, "sgd" 0 (without momentum).
	OptimizerBytes map[string]int64 `json:"optimizer_bytes"`
	// "module", "config", "folder", "catalogue", "manual"
	Source string `json:"source"`
}

// ClassOrName is the name by which people know the model.
func (m Model) ClassOrName() string {
	switch {
	case m.ClassName != "":
		return m.ClassName
	case m.Name != "":
		return m.Name
	}
	return "this model"
}
