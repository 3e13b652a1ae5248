//! System tests: the machine as a black box.
