package profile

// Or gives the value that a pointer holds, or the default of an absent one.
func Or[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}
