// Command forecast_truth measures the forecasts of core/forecast on simulated trainings whose end is known: how many of those that
// run out of memory were warned in time, and how often a training in order was. PyTorch's allocator is simulated (core/memory/allocator),
// so that caches, records of random lengths and fragmentation are its own. The same seeds give the same trainings.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/parallel"
)

const (
	aimWarned = 0.95
	aimFalse  = 1.0 // a day
	leadS     = 30.0
	leadSteps = 20
)

func main() {
	from := flag.Uint64("seed", 1_000_000, "first seed")
	each := flag.Int("each", 100, "trainings of each kind that run out of memory")
	normal := flag.Int("normal", 400, "trainings in order")
	hours := flag.Float64("hours", 6, "simulated hours of each of these, at most")
	only := flag.String("only", "", "one kind alone")
	verbose := flag.Bool("v", false, "name every training that was missed, and every false alarm")
	figures := flag.String("json", "", "file for the figures that README quotes")
	flag.Parse()
	r := measure(*from, *each, *normal, *hours, *only)
	r.print(os.Stdout, *verbose)
	if *figures != "" {
		if err := r.write(*figures); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if !r.good() {
		os.Exit(1)
	}
}

// write puts the figures that README and guides quote into a file.
func (r *result) write(file string) error {
	share, of := r.warned()
	text, err := json.Marshal(map[string]float64{
		"forecast_seen": 100 * share, "forecast_trainings": float64(of), "forecast_false": r.perDay(),
	})
	if err != nil {
		return fmt.Errorf("encoding the figures of %d trainings: %w", of, err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the figures of %d trainings: %w", of, err)
	}
	return nil
}

func measure(from uint64, each, normal int, hours float64, only string) *result {
	var jobs []func() outcome
	for kind := range troubles {
		if only != "" && only != troubles[kind].kind {
			continue
		}
		for i := range each {
			jobs = append(jobs, func() outcome { return judged(newBad(from+uint64(10_000*kind+i), kind), from+uint64(10_000*kind+i)) })
		}
	}
	if only == "" || only == "normal" {
		for i := range normal {
			seed := from + 500_000 + uint64(i)
			jobs = append(jobs, func() outcome { return judged(newSimulation(seed, hours), seed) })
		}
	}
	outcomes := make([]outcome, len(jobs))
	if err := parallel.Do(len(jobs), func(i int) error {
		outcomes[i] = jobs[i]()
		return nil
	}); err != nil {
		panic(err)
	}
	return summed(outcomes)
}

type outcome struct {
	seed        uint64
	kind        string // "" for one in order
	ran, warned bool   // out of memory; in time
	late, right bool
	leadS       float64
	leadSteps   float64
	hours       float64
	falseAlarms []string
}

func judged(t *simulation, seed uint64) outcome {
	t.play()
	o := outcome{seed: seed, kind: t.bad.kind, ran: t.ended, hours: t.at / 3600}
	if o.kind == "" || !o.ran {
		for _, a := range t.w.Alerts() {
			o.falseAlarms = append(o.falseAlarms, fmt.Sprintf("%.0f s: %s: %s", a.AtS, a.Kind, a.Text))
		}
		return o
	}
	if t.told-t.onset < 45 && t.at-t.onsetS < 60 {
		o.ran = false
		return o
	}
	pace := (t.at - t.onsetS) / float64(max(1, t.told-t.onset))
	for _, a := range t.w.Alerts() {
		switch {
		case a.AtS < t.onsetS:
			o.falseAlarms = append(o.falseAlarms, fmt.Sprintf("%.0f s: %s: %s", a.AtS, a.Kind, a.Text))
		case a.ClearedS == nil || *a.ClearedS > t.at-leadS:
			lead := t.at - a.AtS
			if lead > o.leadS {
				o.leadS, o.leadSteps = lead, lead/pace
			}
			o.late = true
			o.right = o.right || slices.Contains(t.bad.alert, a.Kind)
		}
	}
	o.warned = o.leadS >= leadS || o.leadSteps >= leadSteps
	o.late = o.late && !o.warned
	return o
}
