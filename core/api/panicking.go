//go:build panicking

package api

import "github.com/asrconfig/asrconfig-go/core/dataset"

// A library built with the tag "panicking" has operations that panic, in the call and in a
// goroutine: the tests drive them from a subprocess to see that the process lives on and that the
// library refuses further work.
func init() {
	table["test.panic"] = withArgs(func(struct{}) (any, error) { panic("on request") })
	table["test.panic_goroutine"] = withArgs(func(struct{}) (any, error) {
		job := newScanJob()
		if err := job.run(false, func() (dataset.Result, error) {
			panic("on request")
		}); err != nil {
			return nil, err
		}
		done, _ := job.latest()
		<-done
		return struct{}{}, job.err
	})
}
