"""EC2 and Auto Scaling through boto3."""
