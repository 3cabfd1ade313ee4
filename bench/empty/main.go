// Command empty does nothing. Its cost is that of any Go program.
package main

func main() {}
