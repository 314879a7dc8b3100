package profile

// Or returns the value that a pointer holds, or the default of an absent one.
func Or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
