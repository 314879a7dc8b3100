package estimate

import (
	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/recent"
)

const (
	mostIdle       = 4       // estimators that nobody uses, each of another model
	mostRemembered = 1 << 14 // answers of one; a plan asks for one or two thousand
)

var idle = recent.New[string, *Estimator](mostIdle)

// Lend is an estimator for a model that remembers the answers of earlier calls, for one goroutine until it is given back. A folder may
// change between two calls: its estimator is new each time.
func Lend(r model.Request) (lent *Estimator, giveBack func()) {
	key, err := json.Marshal(r)
	if err != nil || r.Folder != "" {
		return Of(r), func() {}
	}
	lent, known := idle.Take(string(key))
	if !known {
		lent = Of(r)
	}
	return lent, func() {
		if len(lent.predictions)+len(lent.estimates)+len(lent.works) <= mostRemembered {
			idle.Put(string(key), lent)
		}
	}
}
