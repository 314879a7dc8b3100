package api

import (
	"math"
	"time"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/hardware"
	"github.com/asrconfig/asrconfig-go/core/monitor"
	"github.com/asrconfig/asrconfig-go/core/report"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

var monitors registry[*monitor.Monitor]

// ReadStats copies the newest sample; false when no monitor has the handle. It is the hot path
// behind ac_stats_read.
func ReadStats(handle uint64, out *monitor.Stats) bool {
	m, ok := monitors.find(handle)
	if ok {
		m.Read(out)
	}
	return ok
}

// PutStep hands one step's figures to a monitor; false when no monitor has the handle. It is the
// hot path behind ac_step_put.
func PutStep(handle uint64, s *Step) bool {
	m, ok := monitors.find(handle)
	if ok {
		m.Step(s.logged())
	}
	return ok
}

type startMonitorArgs struct {
	hardware.Options
	IntervalMS float64 `json:"interval_ms"`
}

type monitorStarted struct {
	Monitor  uint64   `json:"monitor"`
	GPUs     []string `json:"gpus"`      // names, in the order of ac_stats.gpu
	GPUError string   `json:"gpu_error"` // why there are none
}

// startMonitor starts to sample memory and activity, until monitor.stop. ac_stats_read copies the
// newest sample, ac_step_put reports a step.
func startMonitor(a startMonitorArgs) (monitorStarted, error) {
	if a.PID < 0 {
		return monitorStarted{}, fault.New(fault.InvalidArgument,
			"pass the PID of a running process", "invalid pid %d", a.PID)
	}
	started := monitorStarted{GPUs: []string{}}
	reader, err := openGPUs(a.Options, &started)
	if err != nil {
		return monitorStarted{}, err
	}
	m, err := monitor.Start(monitor.Config{
		GPU: reader, Host: hardware.OpenHost(a.Root).Memory,
		Watcher:  hardware.WatchHost(a.Root).Of(a.PID),
		Forecast: forecast.New(len(started.GPUs)),
		Interval: time.Duration(a.IntervalMS * float64(time.Millisecond)),
	})
	if err != nil {
		if reader != nil {
			reader.Close()
		}
		return monitorStarted{}, err
	}
	started.Monitor = monitors.add(m)
	return started, nil
}

// openGPUs returns a nil reader, and the reason in started, on a machine without GPUs: host memory
// is watched anyway.
func openGPUs(o hardware.Options, started *monitorStarted) (monitor.GPUReader, error) {
	devices, err := hardware.OpenDevices(o)
	if err != nil {
		if f := fault.From(err); f.Code == fault.NotFound {
			started.GPUError = f.Message
			return nil, nil
		}
		return nil, err
	}
	for i := range devices.Count() {
		started.GPUs = append(started.GPUs, devices.Properties(i).Name)
	}
	return devices, nil
}

// monitorArgs name a monitor. A stopped one keeps what it saw until it is closed.
type monitorArgs struct {
	Monitor uint64 `json:"monitor"`
}

func (a monitorArgs) found() (*monitor.Monitor, error) {
	return monitors.get(a.Monitor, "monitor")
}

// stopMonitor takes no more samples; what was seen stays until monitor.close.
func stopMonitor(m *monitor.Monitor, _ monitorArgs) (struct{}, error) {
	m.Stop()
	return struct{}{}, nil
}

// closeMonitor stops a monitor and forgets what it saw.
func closeMonitor(m *monitor.Monitor, a monitorArgs) (struct{}, error) {
	monitors.remove(a.Monitor)
	m.Stop()
	return struct{}{}, nil
}

type historyArgs struct {
	monitorArgs
	MaxPoints int `json:"max_points"`
}

// monitorHistory returns the memory series, in at most max_points points; 0: as many as there are.
func monitorHistory(m *monitor.Monitor, a historyArgs) (monitor.History, error) {
	return m.History(a.MaxPoints), nil
}

// monitorRunLog returns everything seen so far.
func monitorRunLog(m *monitor.Monitor, _ monitorArgs) (runlog.Log, error) { return m.Log(), nil }

type saveArgs struct {
	monitorArgs
	Path string `json:"path"`
}

// saveMonitor writes the run log into a file.
func saveMonitor(m *monitor.Monitor, a saveArgs) (struct{}, error) {
	log := m.Log()
	return struct{}{}, runlog.Save(a.Path, &log)
}

type alerts struct {
	Alerts []runlog.Alert `json:"alerts"`
}

// monitorAlerts returns all alerts so far, oldest first.
func monitorAlerts(m *monitor.Monitor, _ monitorArgs) (alerts, error) {
	return alerts{m.Alerts()}, nil
}

type checkArgs struct {
	monitorArgs
	forecast.Limits
}

// checkMonitor compares the use of memory with limits, and returns what a training is to be told
// and asked to do since the check before.
func checkMonitor(m *monitor.Monitor, a checkArgs) (monitor.Check, error) {
	return m.Check(a.Limits), nil
}

type eventArgs struct {
	monitorArgs
	Kind string `json:"kind"`
	GPU  int    `json:"gpu"`
	Text string `json:"text"`
}

// recordEvent adds an event to the run log.
func recordEvent(m *monitor.Monitor, a eventArgs) (struct{}, error) {
	if a.Kind == "" || a.Text == "" {
		return struct{}{}, fault.New(fault.InvalidArgument,
			`say what happened, as in kind "training", text "epoch 2"`,
			"an event without kind or text")
	}
	m.Record(a.Kind, a.GPU, a.Text)
	return struct{}{}, nil
}

// monitorActivity returns the newest reading of what the host and the GPUs do: at_s in seconds from
// the start, the names of runlog.ActivitySeries, and for each GPU those of runlog.GPUSeries; null
// for what is not known.
func monitorActivity(m *monitor.Monitor, _ monitorArgs) (map[string]any, error) {
	atS, host, gpus := m.Activity()
	reading := host.Named()
	reading["at_s"] = nil
	if !math.IsNaN(atS) {
		reading["at_s"] = atS
	}
	named := make([]map[string]any, len(gpus))
	for i := range gpus {
		named[i] = gpus[i].Named()
	}
	reading["gpus"] = named
	return reading, nil
}

type blocksArgs struct {
	RunLog runlog.Log        `json:"run_log"`
	Run    diagnosis.Run     `json:"run"`
	Blocks []diagnosis.Block `json:"blocks"`
}

type blocksAnswer struct {
	Readings diagnosis.Readings  `json:"readings"`
	Findings []diagnosis.Finding `json:"findings"`
}

// diagnoseBlocks says of some blocks of a run log what was read during them, and what it means.
// Errors: Corrupt.
func diagnoseBlocks(a blocksArgs) (answer blocksAnswer, err error) {
	if err := a.RunLog.Check(); err != nil {
		return answer, err
	}
	answer.Readings, answer.Findings = diagnosis.OfBlocks(&a.RunLog, a.Run, a.Blocks)
	return answer, nil
}

type runLogArgs struct {
	RunLog runlog.Log `json:"run_log"`
}

// checkRunLog refuses a run log that does not hold together. Errors: Corrupt.
func checkRunLog(a runLogArgs) (struct{}, error) { return struct{}{}, a.RunLog.Check() }

type exportArgs struct {
	Sources []report.Source `json:"sources"`
	Format  string          `json:"format"` // csv, jsonl or chrome
}

// exportRun writes what the monitors of a run saw, for other programs. Behind the zero byte of the
// answer: the file's content, in UTF-8. Errors: Corrupt, InvalidArgument.
func exportRun(a exportArgs) (attachment[struct{}], error) {
	content, err := report.Export(a.Sources, a.Format)
	return attachment[struct{}]{size: len(content), write: func(to []byte) {
		copy(to, content)
	}}, err
}
