package timing

import (
	_ "embed"
	"math"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// pricesJSON is one card per line, with where and when its price was seen. To correct one, change
// its line; who plans gives prices of their own.
//
//go:embed prices.json
var pricesJSON []byte

// Price is the dollars per hour of one GPU.
type Price struct {
	GPU      string  `json:"gpu"` // key of the catalogue
	Hour     float64 `json:"usd_per_hour"`
	Provider string  `json:"provider"`
	Date     string  `json:"date"`   // when it was seen, year and month
	Source   string  `json:"source"` // where
}

// Prices is the table.
var Prices = sync.OnceValue(func() []Price {
	return jsontext.Embedded[[]Price]("core/timing/prices.json", pricesJSON)
})

// maxPrice is above what any machine costs an hour.
const maxPrice = 1e6

// GivenPrice is a price of the caller's. Errors: InvalidArgument for what is not a price.
func GivenPrice(key string, hour float64) (Price, error) {
	if math.IsNaN(hour) || hour < 0 || hour > maxPrice {
		return Price{}, fault.New(fault.InvalidArgument,
			"pass dollars per hour and GPU, such as T4=0.35", "the price of %s is %v",
			fault.Shorten(key), hour)
	}
	return Price{GPU: key, Hour: hour, Provider: "given"}, nil
}

// utilisation is the share of its board power that a GPU takes on average while it trains: an
// assumption.
var utilisation = profile.Range{Low: 0.5, Likely: 0.75, High: 1.0}

// Energy is kilowatt hours of the GPUs alone, without the machine around them. Absent where the
// board power is not known.
func Energy(g profile.GPU, devices int, hours profile.Range) *profile.Range {
	if g.PowerWatts == nil {
		return nil
	}
	kilowatts := *g.PowerWatts * float64(devices) / 1000
	used := hours.Product(utilisation).Times(kilowatts)
	return &used
}
