package kernel

import (
	_ "embed"
	"sync"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/timing"
)

//go:embed fitted.json
var fittedJSON []byte

// Fit is what measured operators of one card gave.
type Fit struct {
	Single    Efficiency         `json:"single"`    // a linear layer's product
	Batched   Efficiency         `json:"batched"`   // several products in one kernel
	Bandwidth map[string]float64 `json:"bandwidth"` // share of the published one, by class
	// Convolution is how many times longer cuDNN takes than the product that the convolution
	// amounts to.
	Convolution float64 `json:"convolution"`
	// measured over predicted time of operators that were not fitted on: 10th, 50th and 90th
	// percentile
	Residuals map[string]timing.Range `json:"residuals"`
}

// Fitted is the file that benchmarks/time_truth/fit writes.
type Fitted struct {
	Source string `json:"source"`
	// Carried is how far products of one card are off by the shares of the generation before or
	// after.
	Carried map[string]timing.Range `json:"carried"`
	Cards   map[string]Fit          `json:"cards"`
}

var fitted = sync.OnceValue(func() Fitted {
	var file Fitted
	if err := json.Unmarshal(fittedJSON, &file); err != nil {
		panic("core/timing/kernel/fitted.json: " + err.Error())
	}
	return file
})
