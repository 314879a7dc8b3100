package hardware

import (
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// Devices keeps the driver open for repeated memory readings. Its methods may be called from any goroutine.
type Devices struct {
	lock   sync.RWMutex   // readings share it, Close takes it alone: no reading runs against a closed driver
	units  []unit         // the visible ones in CUDA order
	finish func()         // nil once closed
	others otherProcesses // memory of other processes
}

// OpenDevices opens the driver and the visible GPUs. Without a usable driver or GPU it gives NotFound with the reason.
func OpenDevices(options Options) (*Devices, error) {
	session, err := connect(options.LibraryPath)
	if err != nil {
		return nil, err
	}
	units, reason := session.visible(options)
	if len(units) == 0 {
		session.close()
		return nil, fault.New(fault.NotFound, "watch host memory only, or make a GPU visible", "no GPU to watch: %s", reason)
	}
	others := newOtherProcesses(options.Root, len(units))
	if options.PID > 0 {
		others.top = options.PID
	}
	return &Devices{units: units, finish: session.close, others: others}, nil
}

// Count is the number of visible GPUs, at least 1. It stays the same after Close.
func (d *Devices) Count() int { return len(d.units) }

// Name is the driver's name of GPU i, "" when there is no such GPU.
func (d *Devices) Name(i int) string {
	if i < 0 || i >= len(d.units) {
		return ""
	}
	return d.units[i].name
}

// Memory reads GPU i, in bytes; it costs some microseconds. total can exceed used+free by what the driver keeps for
// itself. A driver that fails later gives NotFound with its reason, a wrong index InvalidArgument; it never panics.
func (d *Devices) Memory(i int) (used, total, free uint64, err error) {
	d.lock.RLock()
	defer d.lock.RUnlock()
	if d.finish == nil {
		return 0, 0, 0, fault.New(fault.NotFound, "open the devices again", "cannot read GPU %d: the devices were closed", i)
	}
	if i < 0 || i >= len(d.units) {
		return 0, 0, 0, fault.New(fault.InvalidArgument, "", "there is no GPU %d: indices run from 0 to %d", i, len(d.units)-1)
	}
	memory, err := d.units[i].memory()
	if err != nil {
		return 0, 0, 0, err
	}
	return memory.used, memory.total, memory.free, nil
}

// Properties is what does not change about GPU i; sizes are left to Memory.
func (d *Devices) Properties(i int) runlog.GPU {
	d.lock.RLock()
	defer d.lock.RUnlock()
	if d.finish == nil || i < 0 || i >= len(d.units) {
		return runlog.GPU{}
	}
	u := &d.units[i]
	facts := runlog.GPU{Name: u.name, UUID: u.uuid, MIG: u.mig}
	if u.watch != nil {
		facts.PowerLimitW, facts.MaxClockMHz = u.watch.facts()
	}
	return facts
}

// Activity reads what GPU i does, and what the driver has to tell of; a reading of PCIe holds the caller for 40 ms. One
// goroutine uses it. Nothing is known of a GPU that is not there, or of a closed driver.
func (d *Devices) Activity(i int) (runlog.GPUReading, []runlog.Event) {
	d.lock.RLock()
	defer d.lock.RUnlock()
	if d.finish == nil || i < 0 || i >= len(d.units) || d.units[i].watch == nil {
		return runlog.NoGPUReading(), nil
	}
	reading, events := d.units[i].watch.read()
	reading.Others = d.others.of(i, &d.units[i])
	return reading, events
}

// Close gives the driver back. Closing twice does no harm.
func (d *Devices) Close() error {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.finish != nil {
		for _, u := range d.units {
			if u.watch != nil {
				u.watch.close()
			}
		}
		d.finish()
		d.finish = nil
	}
	return nil
}
