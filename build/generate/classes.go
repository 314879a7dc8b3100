package main

// pythonClass is the dataclass of the Python package that a record becomes.
type pythonClass struct {
	Room, Name string
	Hints      map[string]string // of texts with few values: names in _core/checks.py
	Defaults   map[string]string // for those who make one by hand
	Mutable    bool
}

// pythonClasses are the records that Python has as classes. One named ...Record has a subclass,
// written by hand, with what can be done with it.
var pythonClasses = map[string]pythonClass{
	"profile.BadFile":    {Room: "data", Name: "BadFile"},
	"profile.Histogram":  {Room: "data", Name: "Histogram"},
	"profile.Padding":    {Room: "data", Name: "Padding"},
	"profile.Outliers":   {Room: "data", Name: "Outliers"},
	"profile.Duplicates": {Room: "data", Name: "Duplicates"},
	"profile.Sampling":   {Room: "data", Name: "Sampling"},
	"profile.Dataset":    {Room: "data", Name: "DatasetRecord"},

	"profile.Process":  {Room: "predict", Name: "GPUProcess"},
	"profile.GPU":      {Room: "predict", Name: "GPU"},
	"profile.CPU":      {Room: "predict", Name: "CPU"},
	"profile.Memory":   {Room: "predict", Name: "Memory"},
	"profile.Hardware": {Room: "predict", Name: "HardwareRecord"},
}
