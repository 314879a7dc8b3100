package api

import (
	"errors"
	"math"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/hardware"
	"github.com/asrconfig/asrconfig-go/core/monitor"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

var monitors registry[*monitor.Monitor]

// ReadStats copies the newest sample; false when no monitor has the handle. It is the hot path behind ac_stats_read.
func ReadStats(handle uint64, out *monitor.Stats) bool {
	m, ok := monitors.find(handle)
	if ok {
		m.Read(out)
	}
	return ok
}

// PutStep hands one step's figures to a monitor; false when no monitor has the handle. It is the hot path behind ac_step_put.
func PutStep(handle uint64, s *runlog.Step) bool {
	m, ok := monitors.find(handle)
	if ok {
		m.Step(*s)
	}
	return ok
}

type startMonitorArgs struct {
	hardwareArgs
	IntervalMS float64 `json:"interval_ms"`
	PID        int     `json:"pid"` // whose process tree is the training; 0: the caller's
}

type monitorStarted struct {
	Monitor  uint64   `json:"monitor"`
	GPUs     []string `json:"gpus"`      // names, in the order of ac_stats.gpu
	GPUError string   `json:"gpu_error"` // why there are none
}

func startMonitor(a startMonitorArgs) (any, error) {
	if a.PID < 0 {
		return nil, fault.New(fault.InvalidArgument, "pass the number of a process that runs", "pid = %d is no process", a.PID)
	}
	started := monitorStarted{GPUs: []string{}}
	options := a.options()
	options.PID = a.PID
	reader, err := openGPUs(options, &started)
	if err != nil {
		return nil, err
	}
	m, err := monitor.Start(monitor.Config{
		GPU: reader, Host: hardware.OpenHost(a.Root).Memory, Watcher: hardware.WatchHost(a.Root).Of(a.PID),
		Forecast: forecast.New(len(started.GPUs)), Interval: time.Duration(a.IntervalMS * float64(time.Millisecond)),
	})
	if err != nil {
		if reader != nil {
			err = errors.Join(err, reader.Close())
		}
		return nil, err
	}
	started.Monitor = monitors.add(m)
	return started, nil
}

// openGPUs gives a nil reader, and the reason in started, on a machine without GPUs: host memory is watched all the same.
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
		started.GPUs = append(started.GPUs, devices.Name(i))
	}
	return devices, nil
}

type monitorArgs struct {
	Monitor uint64 `json:"monitor"`
}

// withMonitor is an operation on the monitor that its arguments name. A stopped one keeps what it saw until it is closed.
func withMonitor[A interface{ handle() uint64 }](f func(*monitor.Monitor, A) (any, error)) operation {
	return withArgs(func(a A) (any, error) {
		m, err := monitors.get(a.handle(), "monitor")
		if err != nil {
			return nil, err
		}
		return f(m, a)
	})
}

func (a monitorArgs) handle() uint64 { return a.Monitor }

func stopMonitor(m *monitor.Monitor, _ monitorArgs) (any, error) {
	m.Stop()
	return struct{}{}, nil
}

// closeMonitor stops a monitor and forgets what it saw.
func closeMonitor(m *monitor.Monitor, a monitorArgs) (any, error) {
	monitors.remove(a.Monitor)
	m.Stop()
	return struct{}{}, nil
}

type historyArgs struct {
	monitorArgs
	MaxPoints int `json:"max_points"`
}

func monitorHistory(m *monitor.Monitor, a historyArgs) (any, error) {
	return m.History(a.MaxPoints), nil
}

func resetMonitorPeaks(m *monitor.Monitor, _ monitorArgs) (any, error) {
	m.ResetPeaks()
	return struct{}{}, nil
}

func monitorRunLog(m *monitor.Monitor, _ monitorArgs) (any, error) { return m.Log(), nil }

type saveArgs struct {
	monitorArgs
	Path string `json:"path"`
}

func saveMonitor(m *monitor.Monitor, a saveArgs) (any, error) {
	seen := m.Log()
	return struct{}{}, runlog.Save(a.Path, &seen)
}

func monitorAlerts(m *monitor.Monitor, _ monitorArgs) (any, error) {
	return map[string]any{"alerts": m.Alerts()}, nil
}

type eventArgs struct {
	monitorArgs
	Kind string `json:"kind"`
	GPU  int    `json:"gpu"`
	Text string `json:"text"`
}

func recordEvent(m *monitor.Monitor, a eventArgs) (any, error) {
	if a.Kind == "" || a.Text == "" {
		return nil, fault.New(fault.InvalidArgument, `say what happened, as in kind "training", text "epoch 2"`, "an event without kind or text")
	}
	m.Record(a.Kind, a.GPU, a.Text)
	return struct{}{}, nil
}

func monitorActivity(m *monitor.Monitor, _ monitorArgs) (any, error) {
	at, host, gpus := m.Activity()
	found := host.Named()
	found["at_s"] = nil
	if !math.IsNaN(at) {
		found["at_s"] = at
	}
	named := make([]map[string]any, len(gpus))
	for i := range gpus {
		named[i] = gpus[i].Named()
	}
	found["gpus"] = named
	return found, nil
}
