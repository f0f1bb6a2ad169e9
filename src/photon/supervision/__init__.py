"""The processes of a deployment on one machine: started, watched, restarted, ended."""
